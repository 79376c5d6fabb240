"""The arguments of the public layers: all are described, in their order, and options have names."""

import inspect
import re

import pytest
from torch import nn

from structattn import attention

LAYERS = [kind for kind in (getattr(attention, name) for name in attention.__all__) if issubclass(kind, nn.Module)]


def arguments(layer):
    return list(inspect.signature(layer).parameters.values())


@pytest.mark.parametrize("layer", LAYERS)
def test_all_arguments_are_described_in_their_order(layer):
    section = inspect.getdoc(layer).partition("\nArgs:\n")[2].partition("\n\n")[0]
    described = re.findall(r"^    ([\w, ]+): ", section, re.MULTILINE)
    assert ", ".join(described).split(", ") == [argument.name for argument in arguments(layer)]


SIZES = {
    "d_model", "num_heads", "num_householder", "num_states", "stack_alphabet_size", "stack_embedding_size",
    "offsets",  # one for each head
    "layer",
}  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_options_have_names(layer):
    """Else ``HardAttention(32, 4, True)`` would be one of temperature 1."""
    named = [argument.name for argument in arguments(layer) if argument.kind is inspect.Parameter.KEYWORD_ONLY]
    options = {argument.name for argument in arguments(layer)} - SIZES
    assert options <= set(named)
    assert set(named) - options <= {"num_heads"}  # an option where the mechanism has one by default

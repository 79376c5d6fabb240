"""The arguments of the public layers: all are described, in their order."""

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

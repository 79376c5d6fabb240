"""Every mechanism and kind of positions is built from its settings, wherever it can be used."""

import pytest
from torch import nn

from structattn.models.builders.mechanisms import build_attention, build_cross_attention, build_stack
from structattn.models.builders.positions import added_positions, score_positions
from structattn.models.builders.recurrent import build_recurrent_stack
from structattn.operators import RecurrentStack
from structattn.settings.base import members_of
from structattn.settings.embeddings import POSITIONS
from structattn.settings.layers import AddedStack, CrossAttention, Layer
from structattn.settings.mechanisms import MECHANISMS
from structattn.settings.recurrent import RecurrentStackSettings
from structattn.settings.transformer import TransformerSettings

MODEL = TransformerSettings(d_model=6, num_heads=3)


def settings_of(kind):
    """With small numbers where there is no default."""
    required = [name for name, field in kind.model_fields.items() if field.is_required() and name != "attention"]
    name = kind.model_fields["attention"].annotation.__args__[0]
    return kind(attention=name, **dict.fromkeys(required, 2))


@pytest.mark.parametrize("kind", members_of(Layer))
def test_self_attention_is_built(kind):
    built = build_attention(MODEL, settings_of(kind), causal=True)
    assert isinstance(built, nn.Module) == (settings_of(kind).attention != "none")


@pytest.mark.parametrize("kind", members_of(AddedStack))
def test_added_stacks_are_built(kind):
    assert isinstance(build_stack(6, settings_of(kind)), nn.Module)


@pytest.mark.parametrize("kind", members_of(CrossAttention))
def test_cross_attention_is_built(kind):
    built = build_cross_attention(MODEL, settings_of(kind))
    assert isinstance(built, nn.Module) == (settings_of(kind).attention != "none")


@pytest.mark.parametrize("kind", members_of(RecurrentStackSettings))
def test_recurrent_stacks_are_built(kind):
    assert isinstance(build_recurrent_stack(settings_of(kind)), RecurrentStack)


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_are_built(name):
    model = MODEL.model_copy(update={"positions": POSITIONS[name].settings(kind=name)})
    built = [added_positions(model), score_positions(model, 3, 2)]
    assert [each is not None for each in built] == [
        name in ("sinusoidal", "learned"),
        name in ("relative", "rotary", "alibi"),
    ]


def test_where_mechanisms_can_be_used():
    assert [literal for literal, entry in MECHANISMS.items() if not (entry.layer or entry.self_attention)] == [
        "stratified"
    ]
    assert [literal for literal, entry in MECHANISMS.items() if entry.added_stack] == [
        "superposition", "nondeterministic", "stack_pointer",
    ]  # fmt: skip

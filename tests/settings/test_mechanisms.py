"""Every mechanism and kind of positions is built from its settings, wherever it can be used."""

import pytest
from torch import nn

from structattn.loading.description import describe_model
from structattn.models.builders.mechanisms import (
    added_positions,
    build_attention,
    build_cross_attention,
    build_stack,
    score_positions,
)
from structattn.models.builders.models import build_model
from structattn.models.builders.recurrent import build_recurrent_stack
from structattn.operators import RecurrentStack
from structattn.settings.attention import NoAttention
from structattn.settings.base import members_of
from structattn.settings.embeddings import POSITIONS
from structattn.settings.huggingface import InsertedStack
from structattn.settings.layers import AddedStack, CrossAttention, Layer
from structattn.settings.mechanisms import MECHANISMS, Mechanism
from structattn.settings.recurrent import RecurrentStackSettings
from structattn.settings.run import resolve_settings
from structattn.settings.transformer import TransformerSettings
from structattn.support.errors import SettingsError

MODEL = TransformerSettings(d_model=6, num_heads=3)
STACK = {"attention": "superposition", "stack_embedding_size": 4}


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


@pytest.mark.parametrize("place", [Layer, AddedStack, CrossAttention, RecurrentStackSettings, InsertedStack])
def test_settings_without_defaults_are_those_of_one_mechanism(place):
    """Digests are of them, and exported models have them."""
    given = [settings_of(kind).model_dump(exclude_defaults=True) for kind in members_of(place)]
    assert all(given.count(each) == 1 for each in given)


def takes_attention_dropout(model):
    try:
        resolve_settings({"task": "formal_language", "data": "prepared", "model": model | {"attention_dropout": 0.5}})
    except SettingsError as error:
        if "attention_dropout: 0.5; no layer has weights that are dropped" in str(error):
            return False
        raise
    return True


def drops(built):
    return any(getattr(module, "dropout", 0) == 0.5 for module in ([] if built is None else built.modules()))


@pytest.mark.parametrize("kind", members_of(Layer))
def test_attention_dropout_is_refused_where_no_layer_has_it(kind):
    model = TransformerSettings(d_model=6, num_heads=3, attention_dropout=0.5)
    for fields in ({}, {"num_learned_heads": 1})[: 1 + ("num_learned_heads" in kind.model_fields)]:
        layer = settings_of(kind).model_copy(update=fields)
        sizes, layers = {"d_model": 6, "num_heads": 3}, [layer.model_dump()]
        assert takes_attention_dropout(sizes | {"layers": layers}) == drops(build_attention(model, layer, causal=True))
        assert takes_attention_dropout(sizes | {"layers": [*layers, {"attention": "softmax"}]})


@pytest.mark.parametrize("across", [each for each in members_of(CrossAttention) if each is not NoAttention])
def test_attention_dropout_may_be_that_of_cross_attention(across):
    sizes = {"kind": "encoder_decoder", "d_model": 6, "num_heads": 3}
    model, cross_attention = TransformerSettings(d_model=6, num_heads=3, attention_dropout=0.5), settings_of(across)
    sides = {"encoder": {"layers": "hard"}, "decoder": {"layers": "hard"}}
    assert takes_attention_dropout(sizes | sides)  # softmax, by default
    sides["decoder"] = {"layers": "hard", "cross_attention": [cross_attention.model_dump()]}
    assert takes_attention_dropout(sizes | sides) == drops(build_cross_attention(model, cross_attention))


def test_mechanisms_of_ones_own_may_drop_weights_if_they_know_the_rate():
    layer, self_attention = (lambda d_model, settings: None), (lambda model, settings, causal: None)
    (settings,) = (settings_of(kind) for kind in members_of(AddedStack) if kind.__name__ == "StackPointer")
    assert not Mechanism(type(settings), layer=layer).takes_dropout(settings)
    assert Mechanism(type(settings), self_attention=self_attention).takes_dropout(settings)


@pytest.mark.parametrize("kind", ["two_stream", "two_stream_encoder_decoder"])
def test_two_streams_have_no_attention_dropout(kind):
    assert not takes_attention_dropout({"kind": kind})


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"layers": [{**STACK, "num_heads": 3}]}, r"layers\.0: stack_embedding_size 4 is not divisible by num_heads 3"),
        ({"layers": [{"attention": "stack_pointer", "num_heads": 3}]}, "layer 0: d_model 32 is not divisible by .* 3"),
        (
            {"layers": [{"stack": {"attention": "stack_pointer", "num_heads": 3}}]},
            "d_model 32 is not divisible by .* 3",
        ),
        ({"kind": "lstm", "stack": {**STACK, "num_heads": 2}}, r"stack\.num_heads: expected 1, got 2"),
        ({"kind": "gpt2", "stack": {"num_heads": 5}}, "d_model 768 is not divisible by num_heads 5 of the stack"),
    ],
)
def test_stacks_that_are_not_of_equal_sizes_are_refused(model, message):
    with pytest.raises(SettingsError, match=message):
        resolve_settings({"task": "language_modeling", "data": "unused", "model": model})


def test_several_stacks_are_built_and_described():
    layers = [{**STACK, "num_heads": 4, "stack": {"attention": "stack_pointer", "num_heads": 2}}]
    settings = resolve_settings({"task": "language_modeling", "data": "unused", "model": {"layers": layers}}).model
    (block,) = build_model(settings, 9).layers.blocks
    assert (block.attention.layer.num_heads, block.stack.layer.num_heads) == (4, 2)
    assert describe_model(settings) == "d 32: superposition 4 with 4 heads + stack pointer with 2 heads"


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
        "superposition", "nondeterministic", "stack_pointer", "stack_trans",
    ]  # fmt: skip

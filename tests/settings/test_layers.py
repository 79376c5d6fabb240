"""Layers and positions: every mechanism in full and in short, and refusals of what cannot be."""

import pytest

from structattn.settings.encoder_decoder import DecoderSettings
from structattn.settings.layers import (
    GaussianLayer,
    HardLayer,
    NoAttentionLayer,
    NondeterministicLayer,
    SoftmaxLayer,
    StackPointerLayer,
    SuperpositionLayer,
)
from structattn.settings.mechanisms import CrossGaussian, Nothing, Softmax, StackPointer, Superposition
from structattn.settings.positions import Alibi, NoPositions, Sinusoidal
from structattn.settings.run import RunSettings, resolve_settings
from structattn.support.errors import SettingsError

POINTER = StackPointer(attention="stack_pointer")


def model(*overrides):
    return resolve_settings({"task": "formal_language", "data": "prepared"}, overrides).model


@pytest.mark.parametrize(
    ("short", "layers"),
    [
        ("2", (SoftmaxLayer(), SoftmaxLayer())),
        (
            "softmax-8.superposition-32",
            (SoftmaxLayer(num_heads=8), SuperpositionLayer(attention="superposition", stack_embedding_size=32)),
        ),
        (
            "nondeterministic-2-3-5",
            (
                NondeterministicLayer(
                    attention="nondeterministic", num_states=2, stack_alphabet_size=3, stack_embedding_size=5
                ),
            ),
        ),
        (
            "nondeterministic-2-3-5-20",
            (
                NondeterministicLayer(
                    attention="nondeterministic", num_states=2, stack_alphabet_size=3, stack_embedding_size=5, window=20
                ),
            ),
        ),
        ("2xgaussian.1", (GaussianLayer(attention="gaussian"),) * 2 + (SoftmaxLayer(),)),
        ("gaussian-2", (GaussianLayer(attention="gaussian", num_heads=2),)),
        ("hard.hard-2", (HardLayer(attention="hard"), HardLayer(attention="hard", num_heads=2))),
        ("none.softmax", (NoAttentionLayer(attention="none"), SoftmaxLayer())),
        ("2+stack_pointer", (SoftmaxLayer(stack=POINTER),) * 2),
        ("2xstack_pointer", (SoftmaxLayer(stack=POINTER),) * 2),
        (
            "2xhard-2+superposition-3",
            (
                HardLayer(
                    attention="hard",
                    num_heads=2,
                    stack=Superposition(attention="superposition", stack_embedding_size=3),
                ),
            )
            * 2,
        ),
        ("stack_pointer+stack_pointer", (StackPointerLayer(attention="stack_pointer", stack=POINTER),)),
    ],
)
def test_short_form(short, layers):
    assert model(f"model.layers={short}").layers == layers


def test_long_form():
    (layer,) = model(
        "model.layers=[{attention: gaussian, offsets: [-2, 2.5], stack: superposition-3, feedforward: false}]"
    ).layers
    assert layer.offsets == (-2.0, 2.5)
    assert layer.stack == Superposition(attention="superposition", stack_embedding_size=3)
    assert not layer.feedforward
    (replaced,) = model("model.layers=[{attention: stack_pointer, bottom: first_token}]").layers
    assert replaced == StackPointerLayer(attention="stack_pointer", bottom="first_token")


def test_cross_attention_in_short():
    decoder = DecoderSettings(layers="4", cross_attention="2xnone.softmax-1.gaussian")
    nothing = Nothing(attention="none")
    assert decoder.cross_attention == (nothing, nothing, Softmax(num_heads=1), CrossGaussian(attention="gaussian"))
    assert DecoderSettings(layers="4", cross_attention=4).cross_attention == (Softmax(),) * 4


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("none", NoPositions(kind="none")),
        ("alibi", Alibi(kind="alibi")),
        ("{kind: alibi, variant: shifted}", Alibi(kind="alibi", variant="shifted")),
        ("{base: 256}", Sinusoidal(base=256)),
    ],
)
def test_positions_by_name_or_with_their_fields(given, meant):
    assert model(f"model.positions={given}").positions == meant


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.layers=2.foo.2", "model.layers: .*'foo' in '2.foo.2' is neither a number of softmax layers nor one of"),
        ("model.layers=2.superposition.2", "'superposition' in '2.superposition.2' should read superposition-m"),
        ("model.layers=softmax-2-3", "should read softmax or softmax-h"),
        ("model.layers=nondeterministic-a-b-c", "should read nondeterministic-Q-S-m"),
        ("model.layers=2.10", "YAML reads 2.1 as a number"),
        ("model.layers=3x", "'' in '3x' is neither"),
        ("model.layers=3+", "'' in '3[+]' is neither"),
        ("model.layers=3+softmax", r"model\.layers\.0.*stack: .*'softmax'"),
        ("model.layers=0", "at least 1 item"),
        ("model.layers=2.softmax-3", "layer 2: 3 heads do not divide the width 32"),
        ("model.layers=[{attention: gaussian, num_learned_heads: 4}]", "layer 0: 4 learned heads of 4 leave no other"),
        ("model.layers=[{stack: pointer}]", r"model\.layers\.0\.stack: .*'pointer'"),
        (
            "model={num_heads: 32, positions: rotary}",
            "layer 0: rotary positions turn pairs of numbers, and a head has 1",
        ),
        ("model.layers=[{attention: gaussian, window: 4}]", "window: .*expected an odd number of positions, got 4"),
        ("model.positions=polar", "model.positions: .*'polar'"),
        ("model.positions={kind: alibi, base: 3}", r"model\.positions\.base: Extra inputs"),
        (
            "model={kind: encoder_decoder, decoder: {layers: 3, cross_attention: 2}}",
            "model.decoder: .*cross_attention tells of 2 layers, and there are 3",
        ),
        (
            "model={kind: encoder_decoder, decoder: {layers: 2, cross_attention: 2xnone}}",
            "model.decoder: .*no layer looks at the source",
        ),
        (
            "model={kind: encoder_decoder, decoder: {cross_attention: 5xsuperposition-3}}",
            r"model\.decoder\.cross_attention\.0.*'superposition'",
        ),
        ("model={kind: encoder_decoder, encoder: {layers: softmax-3}}", "encoder layer 0: 3 heads"),
    ],
)
def test_what_cannot_be_is_refused_with_its_path(override, message):
    with pytest.raises(SettingsError, match=message):
        model(override)


def test_the_schema_knows_the_short_form_of_layers():
    layers = RunSettings.model_json_schema()["$defs"]["LanguageModelSettings"]["properties"]["layers"]
    kinds = {option.get("type") for option in layers["anyOf"]}
    assert kinds == {"array", "string", "integer"}
    assert "minLength" not in layers


def test_every_field_of_a_model_is_described():
    schema = RunSettings.model_json_schema()["$defs"]
    kinds = {"LanguageModelSettings", "MaskedLanguageModelSettings", "EncoderDecoderSettings", "EncoderSettings"}
    kinds |= {"DecoderSettings"} | {name for name in schema if name.endswith("Layer")}
    for kind in kinds:
        for name, field in schema[kind]["properties"].items():
            assert name in ("kind", "attention") or field.get("description"), (kind, name)

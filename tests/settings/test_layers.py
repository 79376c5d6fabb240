"""Settings of layers and positions: long form, short form and errors."""

import pytest

from structattn.settings.attention import CrossGaussian, NoAttention, Softmax
from structattn.settings.embeddings import Alibi, NoPositions, Sinusoidal
from structattn.settings.layers import layer_class
from structattn.settings.mechanisms import MECHANISMS
from structattn.settings.run import RunSettings, resolve_settings
from structattn.settings.stacks import StackPointer, Superposition
from structattn.settings.transformer import DecoderSettings
from structattn.support.errors import SettingsError, UsageError
from structattn.tasks.formal_languages.registry import formal_language
from structattn.tasks.transductions.registry import transduction

POINTER = StackPointer(attention="stack_pointer")


def layer(attention, **fields):
    return layer_class(MECHANISMS[attention].settings)(attention=attention, **fields)


def model(*overrides):
    return resolve_settings({"task": "formal_language", "data": "prepared"}, overrides).model


@pytest.mark.parametrize(
    ("short", "layers"),
    [
        ("2", (layer("softmax"), layer("softmax"))),
        (
            "softmax-8.superposition-32",
            (layer("softmax", num_heads=8), layer("superposition", stack_embedding_size=32)),
        ),
        (
            "nondeterministic-2-3-5",
            (layer("nondeterministic", num_states=2, stack_alphabet_size=3, stack_embedding_size=5),),
        ),
        (
            "nondeterministic-2-3-5-20",
            (layer("nondeterministic", num_states=2, stack_alphabet_size=3, stack_embedding_size=5, window=20),),
        ),
        ("2xgaussian.1", (layer("gaussian"),) * 2 + (layer("softmax"),)),
        ("gaussian-2", (layer("gaussian", num_heads=2),)),
        ("hard.hard-2", (layer("hard"), layer("hard", num_heads=2))),
        ("none.softmax", (layer("none"), layer("softmax"))),
        ("2+stack_pointer", (layer("softmax", stack=POINTER),) * 2),
        ("2xstack_pointer", (layer("softmax", stack=POINTER),) * 2),
        (
            "2xhard-2+superposition-3",
            (
                layer(
                    "hard",
                    num_heads=2,
                    stack=Superposition(attention="superposition", stack_embedding_size=3),
                ),
            )
            * 2,
        ),
        ("stack_pointer+stack_pointer", (layer("stack_pointer", stack=POINTER),)),
    ],
)
def test_short_form(short, layers):
    assert model(f"model.layers={short}").layers == layers


def test_long_form():
    (gaussian,) = model(
        "model.layers=[{attention: gaussian, offsets: [-2, 2.5], stack: superposition-3, feedforward: false}]"
    ).layers
    assert gaussian.offsets == (-2.0, 2.5)
    assert gaussian.stack == Superposition(attention="superposition", stack_embedding_size=3)
    assert not gaussian.feedforward
    (replaced,) = model("model.layers=[{attention: stack_pointer, bottom: learned}]").layers
    assert replaced == layer("stack_pointer", bottom="learned")


def test_short_form_of_cross_attention():
    decoder = DecoderSettings(layers="4", cross_attention="2xnone.softmax-1.gaussian")
    nothing = NoAttention(attention="none")
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
def test_positions_are_a_name_or_a_mapping(given, meant):
    assert model(f"model.positions={given}").positions == meant


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "model.layers=2.foo.2",
            "model.layers=.*: .*'foo' in '2.foo.2': expected a number of softmax layers or one of",
        ),
        ("model.layers=2.superposition.2", "'superposition' in '2.superposition.2': expected superposition-m"),
        ("model.layers=softmax-2-3", "expected softmax or softmax-h"),
        ("model.layers=nondeterministic-a-b-c", "expected nondeterministic-Q-S-m"),
        ("model.layers=", "model.layers=: is empty; expected layers, as 2.superposition-32.2"),
        ("model.d_model=", "model.d_model=: is empty; expected an integer"),
        ("model.layers=2.10", "YAML reads 2.1 as a number"),
        ("model.layers=3x", "'' in '3x': expected a number"),
        ("model.layers=3+", "'' in '3[+]': expected one of"),
        ("model.layers=3+softmax", "'softmax' in '3[+]softmax': expected one of"),
        ("model.layers=0", "expected at least one item"),
        ("model.layers=2.softmax-3", "layer 2: d_model 32 is not divisible by num_heads 3"),
        (
            "model.layers=[{attention: gaussian, num_learned_heads: 4}]",
            "layer 0: num_learned_heads=4; expected less than 4 heads",
        ),
        ("model.layers=[{stack: pointer}]", r"model\.layers\.0\.stack: .*'pointer'"),
        (
            "model={num_heads: 32, positions: rotary}",
            "layer 0: rotary positions need an even head size; got 1",
        ),
        ("model.layers=[{attention: gaussian, window: 4}]", "window: .*expected an odd number of positions, got 4"),
        ("model.positions=polar", "model.positions=.*: .*'polar'"),
        ("model.positions={kind: alibi, base: 3}", r"model\.positions\.base: no such field"),
        (
            "model={kind: encoder_decoder, decoder: {layers: 3, cross_attention: 2}}",
            "model.decoder: .*cross_attention has 2 entries; expected one per layer, 3",
        ),
        (
            "model={kind: encoder_decoder, decoder: {layers: 2, cross_attention: 2xnone}}",
            "model.decoder: .*cross_attention is none in all layers",
        ),
        (
            "model={kind: encoder_decoder, decoder: {cross_attention: 5xsuperposition-3}}",
            r"model\.decoder\.cross_attention: 'superposition-3' .* one of gaussian, hard, none, softmax;",
        ),
        (
            "model={kind: encoder_decoder, encoder: {layers: softmax-3}}",
            "encoder layer 0: d_model 32 is not divisible by num_heads 3",
        ),
    ],
)
def test_errors_name_the_path(override, message):
    with pytest.raises(SettingsError, match=message):
        model(override)


def test_schema_allows_the_short_form_of_layers():
    layers = RunSettings.model_json_schema()["$defs"]["LanguageModelSettings"]["properties"]["layers"]
    kinds = {option.get("type") for option in layers["anyOf"]}
    assert kinds == {"array", "string", "integer"}
    assert "minLength" not in layers


def test_every_field_has_a_description():
    schema = RunSettings.model_json_schema()["$defs"]
    kinds = {"LanguageModelSettings", "MaskedLanguageModelSettings", "EncoderDecoderSettings", "EncoderSettings"}
    kinds |= {"DecoderSettings"} | {name for name in schema if name.endswith("Layer")}
    for kind in kinds:
        for name, field in schema[kind]["properties"].items():
            assert name in ("kind", "attention") or field.get("description"), (kind, name)


OWN = (
    "; one of your own needs --plugin FILE.py, or plugins: [FILE.py] in a recipe; in Python, import the file that "
    "registers it"
)
BUILT_IN = [entry for name, entry in sorted(MECHANISMS.items()) if name not in MECHANISMS.plugins]
PLACES = {
    "layers": ("model.layers=2xfoo", lambda entry: entry.layer or entry.self_attention),
    "layers, by name": ("model.layers=[{attention: foo}]", lambda entry: entry.layer or entry.self_attention),
    "added": ("model.layers=2+foo", lambda entry: entry.added_stack),
    "added, by name": ("model.layers=[{stack: foo}]", lambda entry: entry.added_stack),
    "recurrent": ("model={kind: lstm, stack: foo}", lambda entry: entry.recurrent_stack),
    "pretrained": ("model={kind: gpt2, stack: foo}", lambda entry: entry.added_stack),
    "cross": ("model.decoder={layers: 2, cross_attention: 2xfoo}", lambda entry: entry.cross_attention),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_unknown_mechanism_is_refused_with_those_that_fit_there_and_the_way_to_add_one(place):
    override, fits = PLACES[place]
    first = ["model.kind=encoder_decoder"] if place == "cross" else []
    with pytest.raises(SettingsError) as caught:
        model(*first, override)
    names = {entry.name for entry in BUILT_IN if fits(entry)}
    assert 0 < len(names) < len(BUILT_IN)
    listed = str(caught.value).partition("one of ")[2].partition(";")[0].split(", got")[0]
    assert {name for name in listed.split(", ") if name in {entry.name for entry in BUILT_IN}} == names
    assert OWN in str(caught.value)


def test_a_mechanism_of_another_place_is_refused_with_those_that_fit():
    for override in ("model.layers=2.stratified", "model={kind: lstm, stack: stack_pointer}", "model.layers=1+hard"):
        with pytest.raises(SettingsError, match=r"expected (a number of softmax layers or )?one of"):
            model(override)


def test_an_unknown_task_means_one_that_has_the_word():
    with pytest.raises(SettingsError) as caught:
        resolve_settings({"task": "transduction", "data": "prepared"})
    assert f"; did you mean masked_transduction or autoregressive_transduction?{OWN}" in str(caught.value)
    with pytest.raises(SettingsError, match=r"did you mean formal_language\?"):
        resolve_settings({"task": "formal_languages", "data": "prepared"})


@pytest.mark.parametrize("find", [formal_language, transduction])
def test_unknown_languages_and_transductions_name_the_option_for_plugins(find):
    with pytest.raises(UsageError) as caught:
        find("foo")
    assert str(caught.value).endswith(OWN)

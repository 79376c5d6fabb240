"""What is registered can be used like what is built in; what cannot be registered is refused."""

import copy
import pickle
import re
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

import structattn
from structattn.attention import AttentionLayer
from structattn.models.builders.mechanisms import build_cross_attention, build_stack
from structattn.models.builders.models import build_model
from structattn.models.builders.recurrent import build_recurrent_stack
from structattn.operators import RecurrentStack
from structattn.settings import MECHANISMS, Mechanism, Positions, RunSettings, Settings, SweepSettings, Use
from structattn.settings.huggingface import stack_from
from structattn.settings.layers import layers_from_short
from structattn.settings.mechanisms import describe_mechanism
from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError, UsageError

TREE = {"task": "formal_language", "data": "prepared"}


def resolved(*overrides, **tree):
    return resolve_settings({**TREE, **tree}, overrides)


@pytest.mark.usefixtures("decay")
class TestMechanism:
    def test_is_a_layer_and_an_added_stack(self):
        settings = resolved("model.layers=1.2xdecay-4.1+decay").model
        assert [layer.attention for layer in settings.layers] == ["softmax", "decay", "decay", "softmax"]
        assert settings.layers[1].half_life == 4
        model = build_model(settings, 6)
        layers = [module for module in model.modules() if type(module).__name__ == "DecayAttention"]
        assert len(layers) == 3
        assert all(isinstance(layer, AttentionLayer) for layer in layers)

    def test_is_described_and_has_a_short_form(self):
        described = [describe_mechanism(layer) for layer in resolved("model.layers=decay.decay-4").model.layers]
        assert described == ["decay", "decay-4"]
        assert layers_from_short("2xdecay") == [{"attention": "decay"}] * 2
        with pytest.raises(ValueError, match=re.escape("expected decay or decay-half_life, with numbers")):
            layers_from_short("decay-1-2")

    @pytest.mark.parametrize(
        ("layers", "message"),
        [
            (
                "decai-3",
                "'decai-3' in 'decai-3': expected a number .* one of decay, delta_product.*did you mean decay?",
            ),
            ("[{attention: deca}]", "model.layers.0: 'deca' is not one of softmax, .*none, decay; did you mean decay?"),
            ("[{attention: decay, half_life: 0}]", "model.layers.0.half_life: expected more than 0"),
            (
                "[{attention: decay, half_lif: 1}]",
                "model.layers.0.half_lif: no such field; did you mean model.layers.0.half_life? "
                "[expected one of attention, feedforward, half_life, stack]",
            ),
            (
                "[{attention: softmax, stack: {attention: decay, half_life: a}}]",
                "model.layers.0.stack.half_life: expected a number, got 'a'",
            ),
        ],
    )
    def test_errors_have_its_path(self, layers, message):
        with pytest.raises(SettingsError) as caught:
            resolved(f"model.layers={layers}")
        pattern = ".*".join(map(re.escape, message.split(".*")))
        assert re.search(pattern, str(caught.value)), str(caught.value)

    @pytest.mark.parametrize("settings", [RunSettings, SweepSettings])
    def test_is_in_the_schema(self, settings):
        known = "DecayLayer" in settings.model_json_schema().get("$defs", {})
        assert known == (settings is RunSettings)  # the base of a sweep is any mapping

    def test_settings_are_pickled(self, forget):
        settings = resolved("model.layers=1.decay-4")
        assert pickle.loads(pickle.dumps(settings)) == settings == copy.deepcopy(settings)
        assert pickle.loads(pickle.dumps(settings.model.layers)) == settings.model.layers
        content = pickle.dumps(settings)
        forget()
        assert pickle.loads(content).model.layers[1].half_life == 4

    def test_is_a_stack_of_pretrained_models(self):
        stack = stack_from({"attention": "decay", "half_life": 3, "gate": True})
        assert stack.gate
        assert type(build_stack(6, stack)).__name__ == "DecayAttention"


def test_the_unions_of_classes_follow_what_is_registered(decay, forget):
    assert decay.name == "decay.py"
    resolved("model.layers=decay")
    forget()
    with pytest.raises(SettingsError, match="one of delta_product, gaussian, hard, nondeterministic, none"):
        resolved("model.layers=decay")


class Twice(Settings):
    attention: Literal["twice"]
    size: int = 2


def twice(model, settings, causal=None):
    return nn.Linear(model.d_model, settings.size)


def test_cross_attention_and_stacks_of_recurrent_networks():
    stack = Use(Twice, lambda settings: RecurrentStack("superposition", settings.size))
    structattn.register(Mechanism(Twice, cross_attention=Use(Twice, twice), recurrent_stack=stack, sizes=("size",)))
    decoder = {"layers": 2, "cross_attention": "twice-3.none"}
    settings = resolved(task="translation", model={"kind": "encoder_decoder", "decoder": decoder}).model
    assert build_cross_attention(settings, settings.decoder.cross_attention[0]).out_features == 3
    stack = resolved("model.stack=twice-5", model={"kind": "lstm"}).model.stack
    assert build_recurrent_stack(stack).reading_size == 5
    with pytest.raises(
        SettingsError, match=r"'twice-3' in 'twice-3': expected a number of softmax layers or one of (?!.*twice)"
    ):
        resolved("model.layers=twice-3")


class Nameless(Settings):
    size: int = 2


class TwoNames(Settings):
    attention: Literal["one", "two"]


class Softmax(Settings):
    attention: Literal["softmax"]


class Hyphenated(Settings):
    attention: Literal["twice-over"]


class Unnamed(Settings):
    attention: Literal["twice"] = "twice"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (Mechanism(Softmax, layer=twice), "mechanism 'softmax' is built in; expected another name"),
        (Mechanism(Nameless, layer=twice), 'has no field attention with its name, as attention: Literal["decay"]'),
        (Mechanism(TwoNames, layer=twice), "TwoNames: has no field attention with its name"),
        (Mechanism(nn.Linear, layer=twice), "expected a subclass of structattn.settings.Settings"),
        (Mechanism(Hyphenated, layer=twice), "attention is 'twice-over'; expected letters, digits and underscores"),
        (Mechanism(Unnamed, layer=twice), 'attention has a default; expected attention: Literal["twice"]'),
        (Mechanism(Twice), "mechanism 'twice': has no builder; expected layer, a function of (d_model, settings)"),
        (Mechanism(Twice, self_attention=twice, added_stack=True), "has no builder; expected layer"),
        (
            Mechanism(Twice, layer=lambda d_model: None),
            "mechanism 'twice': layer: too many positional arguments; expected a function of (d_model, settings)",
        ),
        (Mechanism(Twice, self_attention=lambda d_model: None), "self_attention: too many positional arguments"),
        (Mechanism(Twice, layer=twice, sizes=("width",)), "Twice has no field 'width', a size"),
        (Mechanism(Twice, layer=twice, optional_size="width"), "Twice has no field 'width', a size"),
        (Mechanism(Twice, cross_attention=Use(Softmax, twice)), "'twice': Softmax has another name; expected the same"),
        (Positions(Twice, added=twice), "Twice: has no field kind with its name"),
        (Twice, "structattn.register got the class Twice; expected a Mechanism, Positions,"),
        (nn.Linear(2, 2), "structattn.register got a Linear; expected a Mechanism, Positions,"),
    ],
)  # fmt: skip
def test_incomplete_entries_are_refused(entry, message):
    with pytest.raises(UsageError) as caught:
        structattn.register(entry)
    assert message in str(caught.value)
    assert "twice" not in MECHANISMS


def test_a_file_may_replace_its_own_entries_only(plugin):
    structattn.register(Mechanism(Twice, layer=twice))
    structattn.register(Mechanism(Twice, layer=twice, label="again"))  # as when a notebook runs a cell again
    assert MECHANISMS["twice"].label == "again"
    text = "class Twice(Settings):\n    attention: Literal['twice']\nstructattn.register(Mechanism(Twice, layer=max))\n"
    with pytest.raises(UsageError, match=r"mechanism 'twice' is registered by .*test_register\.py; expected another"):
        structattn.support.plugins.load_plugin(str(plugin(text)))


class Ramp(Settings):
    """The position itself."""

    kind: Literal["ramp"]
    slope: float = 1.0
    max_positions: int = 9


class RampPositions(nn.Module):
    def __init__(self, d_model, slope):
        super().__init__()
        self.d_model, self.slope = d_model, slope

    def forward(self, first, count):
        return (self.slope * torch.arange(first, first + count))[:, None].expand(count, self.d_model)


class Slope(Settings):
    kind: Literal["slope"]


def test_positions():
    ramp = Positions(Ramp, added=lambda d_model, settings: RampPositions(d_model, settings.slope))
    slope = Positions(
        Slope, scores=lambda num_heads, size, settings: structattn.attention.positions.AlibiPositions(num_heads)
    )
    structattn.register(ramp, slope)
    settings = resolved("model.positions={kind: ramp, slope: 2}", "model.layers=1").model
    model, plain = build_model(settings, 6).eval(), build_model(resolved("model.layers=1").model, 6).eval()
    tokens = torch.tensor([[3, 3, 3]])
    added = model.embedding(tokens) - model.embedding(tokens)[:, :1]
    torch.testing.assert_close(added[0, :, 0], torch.tensor([0.0, 2.0, 4.0]))
    assert type(plain.embedding.positions) is not RampPositions
    scored = build_model(resolved("model.positions=slope", "model.layers=1").model, 6)
    assert sum(isinstance(each, structattn.attention.positions.AlibiPositions) for each in scored.modules()) == 1
    with pytest.raises(SettingsError, match=r"'rammp' is not one of none, .*slope; did you mean ramp\?"):
        resolved("model.positions=rammp")
    with pytest.raises(SettingsError, match=r"model\.positions\.slope: expected a number"):
        resolved("model.positions={kind: ramp, slope: a}")
    assert structattn.settings.embeddings.max_positions(settings) == 9


def test_positions_without_a_builder_are_refused():
    with pytest.raises(UsageError, match="positions 'ramp': have no builder; expected added or scores"):
        structattn.register(Positions(Ramp))
    with pytest.raises(
        UsageError, match=r"positions 'ramp': scores: .*expected a function of \(num_heads, size, settings"
    ):
        structattn.register(Positions(Ramp, scores=lambda settings: None))


def test_a_script_is_its_own_plugin():
    structattn.register(Mechanism(Twice, layer=twice))
    assert MECHANISMS.plugins["twice"].path == Path(__file__)

"""Initial values that a plugin sets are those of the models that are built."""

import json
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

import structattn
from structattn.models.builders.contract import check_cross_initial_values, check_initial_values
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder, build_language_model
from structattn.settings import MECHANISMS, Mechanism, Positions, Settings, Use
from structattn.settings.transformer import EncoderDecoderSettings, LanguageModelSettings

DECAY = Path(__file__).with_name("decay.py")
RULES = ("uniform", "xavier", "lecun")
SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 8}


def built(seed=0, **settings):
    torch.manual_seed(seed)
    return build_language_model(LanguageModelSettings.model_validate({**SIZES, **settings}), VocabularySpec(9))


def logits_of(model):
    return [module.logit.item() for module in model.modules() if type(module).__name__ == "DecayAttention"]


@pytest.mark.usefixtures("decay")
@pytest.mark.parametrize("rule", RULES)
def test_a_setting_of_an_initial_value_has_an_effect(rule):
    model = built(layers="decay-1.1+decay-16", weight_init=rule)
    assert logits_of(model) == [torch.logit(torch.tensor(0.5 ** (1 / half_life))).item() for half_life in (1, 16)]


class Own(Settings):
    attention: Literal["own"]


class OwnPositions(Settings):
    kind: Literal["own"]


class OwnLayer(nn.Module):
    """Parameters of several kinds; it is only built."""

    def __init__(self, d_model):
        super().__init__()
        self.drawn = nn.Parameter(torch.randn(50))
        self.constants = nn.ParameterList([torch.ones(3)])
        self.named = nn.ParameterDict({"two": torch.full((2,), 2.0)})
        self.bottom = nn.Parameter(torch.full((2,), 4.0))
        self.map = nn.Linear(d_model, 50)
        self.norm = nn.RMSNorm(d_model)


class OwnMap(nn.Linear):
    """A layer of torch.nn by inheritance."""


class OwnSelfInitialized(OwnLayer):
    """Sets numbers in a layer of torch.nn."""

    def initialize_own(self):
        nn.init.constant_(self.map.bias, 3.0)
        nn.init.constant_(self.norm.weight, 0.5)


def register(make):
    structattn.register(
        Mechanism(Own, layer=make, added_stack=True, cross_attention=Use(Own, lambda model, _: make(model.d_model, _))),
        Positions(OwnPositions, added=make),
    )


def models(rule):
    """Models with the layer, the stack, the positions and the cross-attention that are registered."""
    yield built(layers="own.1+own", positions="own", weight_init=rule)
    settings = {**SIZES, "kind": "encoder_decoder", "decoder": {"layers": 1, "cross_attention": "own"}}
    settings = EncoderDecoderSettings.model_validate({**settings, "weight_init": rule})
    yield build_encoder_decoder(settings, VocabularySpec(9), VocabularySpec(9))


def layers_of(kind, rule):
    """The four layers that these models have of a class."""
    layers = [module for model in models(rule) for module in model.modules() if type(module) is kind]
    assert len(layers) == 4
    return layers


@pytest.mark.parametrize("rule", RULES)
def test_parameters_of_its_own_are_kept_and_layers_of_torch_follow_the_rule(rule):
    register(lambda d_model, settings: OwnLayer(d_model))
    for layer in layers_of(OwnLayer, rule):
        assert layer.drawn.std().item() == pytest.approx(1, rel=0.4)
        assert torch.equal(layer.constants[0], torch.ones(3))
        assert torch.equal(layer.named["two"], torch.full((2,), 2.0))
        assert torch.equal(layer.norm.weight, torch.ones(8))
        bound = {"uniform": 0.1, "xavier": (6 / 58) ** 0.5, "lecun": 2 * 8**-0.5}[rule]
        assert 0.8 * bound < layer.map.weight.abs().max() <= bound
        assert bool(layer.map.bias.any()) == (rule == "uniform")


def test_classes_that_are_derived_from_layers_of_torch_follow_the_rule():
    register(lambda d_model, settings: OwnMap(d_model, 50))
    assert built(layers="own").layers.blocks[0].attention.layer.weight.abs().max() <= 0.1


@pytest.mark.parametrize("rule", RULES)
def test_initialize_own_has_the_last_word(rule):
    register(lambda d_model, settings: OwnSelfInitialized(d_model))
    for layer in layers_of(OwnSelfInitialized, rule):
        assert torch.equal(layer.map.bias, torch.full((50,), 3.0))
        assert torch.equal(layer.norm.weight, torch.full((8,), 0.5))


def test_pretrained_models_keep_them():
    pytest.importorskip("transformers")
    from transformers import GPT2Config, GPT2LMHeadModel

    from structattn.interop.huggingface import add_stack_attention

    register(lambda d_model, settings: OwnSelfInitialized(d_model))
    model = GPT2LMHeadModel(GPT2Config(vocab_size=9, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    (layer,) = (each for each in add_stack_attention(model, "own").modules() if type(each) is OwnSelfInitialized)
    assert torch.equal(layer.bottom, torch.full((2,), 4.0))
    assert torch.equal(layer.map.bias, torch.full((50,), 3.0))
    assert layer.map.weight.std().item() == pytest.approx(0.02, rel=0.2)


def test_the_seed_determines_what_a_constructor_draws():
    register(lambda d_model, settings: OwnLayer(d_model))
    first, second, third = (built(seed, layers="own").state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    name = "layers.blocks.0.attention.layer.drawn"
    assert not torch.equal(first[name], third[name])


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "self.logit =",
            "nn.init.constant_(self.projection.bias, 3.0)\n        self.logit =",
            "the constructor sets projection.bias to 3, and a model with weight_init 'uniform' begins with ",
        ),
        (
            "self.logit =",
            "nn.init.zeros_(self.projection.weight)\n        self.logit =",
            "the constructor sets projection.weight to 0, and a model with weight_init 'uniform' begins with ",
        ),
        (
            "def forward",
            "def initialize_own(self):\n        nn.init.zeros_(self.logit)\n\n    def forward",
            "and a model with weight_init 'uniform' begins with 0; initialize_own is called last and can set it",
        ),
        (
            "self.logit =",
            "import time\n        self.seed = nn.Parameter(torch.tensor(time.time() % 1))\n        self.logit =",
            "the initial seed differs from that of an equal seed of torch by up to ",
        ),
    ],
    ids=["bias", "weight", "overwritten", "seed"],
)
def test_the_doctor_finds_initial_values_that_are_lost(tmp_path, structattn, old, new, problem):
    (tmp_path / "lost.py").write_text(DECAY.read_text().replace(old, new).replace('"decay"', '"lost"'))
    done = structattn("doctor", tmp_path / "lost.py", "--json")
    problems = {each["check"]: each["problem"] for each in json.loads(done.stdout) if each["problem"]}
    assert problems.keys() == {"initial values"}
    assert problem in problems["initial values"]


NAMES = [name for name, entry in MECHANISMS.items() if (entry.layer or entry.self_attention) and name != "none"]


@pytest.mark.parametrize("name", NAMES)
def test_initial_values_of_built_in_layers_survive(name):
    entry = MECHANISMS[name]
    sizes = {field: size for size, field in enumerate(entry.sizes, start=2)}
    check_initial_values(entry.settings(attention=name, **sizes))
    if entry.cross_attention is not None:
        check_cross_initial_values(entry.cross_attention.settings(attention=name))

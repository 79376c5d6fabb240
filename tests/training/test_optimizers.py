"""Optimizers by name: those of torch, with their state in checkpoints."""

import re

import pytest
import torch
from torch import nn

from structattn.runs.folder import RunFolder
from structattn.runs.selection import MismatchError
from structattn.settings.optimizers import AdamWSettings
from structattn.settings.run import resolve_settings
from structattn.settings.training import TrainingSettings
from structattn.support.errors import SettingsError
from structattn.training.learner import build_learner, load_optimizer_tensors, optimizer_tensors_of
from structattn.training.optimizers import hidden_matrices
from structattn.training.run_training import train

RATE = {"learning_rate": 0.02}
ADAMW = AdamWSettings()
MUON = {"kind": "muon", **RATE, "adamw": {"learning_rate": 0.01}}
OPTIMIZERS = {
    "adamw": {"kind": "adamw", **RATE, "weight_decay": 0.1},
    "sgd": {"kind": "sgd", **RATE, "momentum": 0.8, "nesterov": True},
    "sgd without momentum": {"kind": "sgd", **RATE, "momentum": 0.0, "weight_decay": 0.1},
    "rmsprop": {"kind": "rmsprop", **RATE, "alpha": 0.9},
    "rmsprop, all": {"kind": "rmsprop", **RATE, "momentum": 0.5, "centered": True, "weight_decay": 0.1},
    "adafactor": {"kind": "adafactor", **RATE, "weight_decay": 0.1},
    "muon": MUON,
    "muon without momentum": MUON | {"momentum": 0.0},
}
THEIRS = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.1),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.02, momentum=0.8, nesterov=True),
    "sgd without momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.02, weight_decay=0.1),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.02, alpha=0.9),
    "rmsprop, all": lambda parameters: torch.optim.RMSprop(
        parameters, lr=0.02, momentum=0.5, centered=True, weight_decay=0.1
    ),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=0.02, weight_decay=0.1),
}


def small_model():
    torch.manual_seed(1)
    layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    return nn.ModuleDict({"embedding": nn.Embedding(6, 4), "layers": layers, "output": nn.Linear(4, 6)})


def take_steps(model, optimizers, count=3):
    for step in range(count):
        hidden = model["embedding"](torch.tensor([0, 2, 5 - step]))
        for layer in model["layers"]:
            hidden = layer(hidden).tanh()
        model["output"](hidden).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("name", THEIRS)
def test_optimizers_are_those_of_torch(name):
    learner = build_learner(small_model(), TrainingSettings(optimizer=OPTIMIZERS[name]), "cpu")
    take_steps(learner.model, learner.optimizers)
    expected = small_model()
    take_steps(expected, [THEIRS[name](expected.parameters())])
    for found, parameter in zip(learner.parameters, expected.parameters(), strict=True):
        torch.testing.assert_close(found, parameter)


def test_defaults_are_those_of_torch_but_for_the_momentum_of_sgd():
    parameters = [nn.Parameter(torch.zeros(2, 2))]
    for kind in ("adamw", "sgd", "rmsprop", "adafactor", "muon"):
        ours = build_learner(small_model(), TrainingSettings(optimizer=kind), "cpu").optimizers[0]
        theirs = type(ours)(parameters)
        same = ours.defaults.keys() - {"lr", "fused", "weight_decay", "momentum", "adjust_lr_fn"}
        assert {name: ours.defaults[name] for name in same} == {name: theirs.defaults[name] for name in same}


def test_adamw_goes_on_from_a_state_that_is_loaded_between_its_steps():
    learners = [build_learner(small_model(), TrainingSettings(), "cpu") for _ in range(2)]
    for learner, count in zip(learners, (2, 5), strict=True):
        take_steps(learner.model, learner.optimizers, count)
    first, second = learners
    with torch.no_grad():
        for parameter, other in zip(second.parameters, first.parameters, strict=True):
            parameter.copy_(other)
    load_optimizer_tensors(second, {name: each.clone() for name, each in optimizer_tensors_of(first).items()})
    for learner in learners:
        take_steps(learner.model, learner.optimizers)
    for one, other in zip(first.parameters, second.parameters, strict=True):
        assert torch.equal(one, other)
    assert {float(state["step"]) for state in second.optimizers[0].state.values()} == {5.0}


def test_adamw_leaves_parameters_without_a_gradient_alone():
    learner, theirs = (
        build_learner(small_model(), TrainingSettings(optimizer=OPTIMIZERS["adamw"]), "cpu"),
        small_model(),
    )
    ours, optimizers = learner.model, (*learner.optimizers, THEIRS["adamw"](theirs.parameters()))
    for step in range(4):
        for model, optimizer in zip((ours, theirs), optimizers, strict=True):
            model["output"].requires_grad_(step != 1)
            model["embedding"].requires_grad_(step > 1)
            take_steps(model, [optimizer], 1)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_muon_has_the_matrices_of_layers_and_adamw_the_rest():
    model = small_model()
    muon, adamw = build_learner(model, TrainingSettings(optimizer=MUON), "cpu").optimizers
    assert isinstance(muon, torch.optim.Muon)
    assert isinstance(adamw, torch.optim.AdamW)
    matrices = {id(layer.weight) for layer in model["layers"]}
    (group,), (rest,) = muon.param_groups, adamw.param_groups
    assert {id(each) for each in group["params"]} == matrices
    assert {id(each) for each in rest["params"]} == {id(each) for each in model.parameters()} - matrices
    assert (group["lr"], group["factor"], rest["lr"], rest["factor"]) == (0.02, 1.0, 0.01, 0.5)


def test_muon_is_that_of_torch():
    learner = build_learner(small_model(), TrainingSettings(optimizer=MUON), "cpu")
    take_steps(learner.model, learner.optimizers)
    expected = small_model()
    matrices = [layer.weight for layer in expected["layers"]]
    others = [each for each in expected.parameters() if not any(each is matrix for matrix in matrices)]
    adamw = torch.optim.AdamW(others, lr=0.01, weight_decay=0.0)
    take_steps(expected, [torch.optim.Muon(matrices, lr=0.02, adjust_lr_fn="original"), adamw])
    for found, parameter in zip(learner.parameters, expected.parameters(), strict=True):
        torch.testing.assert_close(found, parameter)


def test_the_matrices_of_a_model_are_those_of_its_layers(dyck):
    learner = build_learner(_model(dyck), TrainingSettings(), "cpu")
    names = {id(parameter): name for name, parameter in learner.model.named_parameters()}
    found = {names[id(each)] for each in hidden_matrices(learner.model)}
    assert found == {
        f"layers.blocks.0.{name}.weight"
        for name in ("attention.layer.projection", "attention.layer.output", "feedforward.layer.hidden",
                     "feedforward.layer.output")
    }  # fmt: skip


def _model(data):
    from structattn.tasks.model import build_model_for
    from structattn.text.folders.prepared import open_prepared

    return build_model_for(run_settings(data).model, open_prepared(data))


def test_a_model_without_matrices_cannot_be_trained_by_muon():
    with pytest.raises(SettingsError, match="'muon' is for the matrices of layers; the model has none"):
        build_learner(nn.Linear(2, 2), TrainingSettings(optimizer="muon"), "cpu")


@pytest.mark.parametrize("name", ["muon", "adafactor"])
def test_optimizers_of_whole_matrices_are_refused_with_fsdp(name):
    with pytest.raises(ValueError, match=f"'fsdp' gives each process a part .* optimizer '{name}' needs whole"):
        TrainingSettings(optimizer=name, strategy="fsdp")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "adamw", "betas": [0.9, 1.0]}, "betas.1: expected less than 1, got 1.0"),
        ({"kind": "adamw", "betas": [-0.1, 0.9]}, "betas.0: expected at least 0, got -0.1"),
        ({"kind": "muon", "adamw": {"betas": [1.0, 0.9]}}, "adamw.betas.0: expected less than 1, got 1.0"),
        ({"kind": "adafactor", "epsilon": [-1, 0.1]}, "epsilon.0: expected at least 0, got -1"),
        ({"kind": "adafactor", "clip_threshold": 0.5}, "clip_threshold: expected at least 1, got 0.5"),
    ],
)
def test_what_torch_refuses_is_refused_with_its_path(settings, message):
    with pytest.raises(SettingsError, match=rf"training\.optimizer\.{re.escape(message)}"):
        resolve_settings({"task": "formal_language", "data": "data", "training": {"optimizer": settings}})


def test_nesterov_needs_momentum():
    with pytest.raises(ValueError, match=r"nesterov=true needs momentum without dampening; got momentum=0\.0"):
        TrainingSettings(optimizer={"kind": "sgd", "momentum": 0, "nesterov": True})


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_of_another_shape_or_optimizer_is_refused(name):
    learner = build_learner(small_model(), TrainingSettings(optimizer=OPTIMIZERS[name]), "cpu")
    take_steps(learner.model, learner.optimizers)
    saved = optimizer_tensors_of(learner)
    load_optimizer_tensors(learner, saved)
    for key, tensor in saved.items():
        with pytest.raises(MismatchError, match=f"'{key}' has shape"):
            load_optimizer_tensors(learner, saved | {key: tensor.new_zeros(7)})
    with pytest.raises(MismatchError, match="unknown"):
        load_optimizer_tensors(learner, saved | {"output.bias/memory": torch.zeros(6)})


def run_settings(data, optimizer=ADAMW, **training):
    model = {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": 1, "dropout": 0.2}
    shared = {"max_epochs": None, "validate_every": 3, "num_threads": 1, "schedule": {"kind": "wsd", "total_steps": 6}}
    training = {"optimizer": optimizer, **shared, **training}
    return resolve_settings({"task": "formal_language", "data": str(data), "model": model, "training": training})


@pytest.mark.covering(1)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_resumed_run_is_byte_identical(dyck, tmp_path, monkeypatch, name, precision):
    """With accumulation, clipping, dropout and a learning rate that changes."""
    monkeypatch.setattr("structattn.support.devices.slow_bf16", lambda device: None)
    changes = {"gradient_accumulation_steps": 2, "max_grad_norm": 0.5, "precision": precision}
    train(run_settings(dyck, OPTIMIZERS[name], max_updates=3, **changes), tmp_path / "run")
    train(None, tmp_path / "run", resume=True, limits={"max_updates": 6})
    train(run_settings(dyck, OPTIMIZERS[name], max_updates=6, **changes), tmp_path / "through")
    run, through = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "through")
    for file in ("model.safetensors", "optimizer.safetensors", "state.json"):
        assert (run.checkpoints / "6" / file).read_bytes() == (through.checkpoints / "6" / file).read_bytes()
    assert run.events.read_bytes() == through.events.read_bytes()

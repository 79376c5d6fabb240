import pytest
import torch
from torch import nn

from structattn.runs.selection import weights_of
from structattn.settings.optimizers import AdamWSettings
from structattn.settings.training import TrainingSettings
from structattn.training.learner import build_learner


def gradients_of(learner):
    return [parameter.grad for parameter in learner.parameters if parameter.grad is not None]


def test_optimizer_has_the_configured_settings():
    adam = AdamWSettings(learning_rate=0.3, betas=(0.5, 0.6), epsilon=1e-3, weight_decay=0.1)
    group = build_learner(nn.Linear(2, 2), TrainingSettings(optimizer=adam), "cpu").optimizers[0].param_groups[0]
    assert {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")} == {
        "lr": 0.3,
        "betas": (0.5, 0.6),
        "eps": 1e-3,
        "weight_decay": 0.1,
    }


@pytest.mark.parametrize(("precision", "inside"), [("float32", torch.float32), ("bf16", torch.bfloat16)])
def test_bf16_applies_only_to_the_forward_pass(precision, inside):
    learner = build_learner(nn.Linear(2, 2), TrainingSettings(precision=precision), "cpu")
    with learner.autocast():
        output = learner.model(torch.ones(1, 2))
    output.float().sum().backward()
    assert output.dtype == inside
    assert {tensor.dtype for tensor in [*gradients_of(learner), *learner.parameters]} == {torch.float32}


def test_a_tied_tensor_is_saved_once():
    module = nn.ModuleDict({"first": nn.Linear(2, 2), "second": nn.Linear(2, 2)})
    module["second"].weight = module["first"].weight
    assert sorted(weights_of(module)) == ["first.bias", "first.weight", "second.bias"]

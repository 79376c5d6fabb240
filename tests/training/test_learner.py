import pytest
import torch
from torch import nn

from structattn.settings.training import AdamSettings, TrainingSettings
from structattn.training.learner import build_learner
from structattn.training.snapshot import weights_of


def test_settings_reach_the_optimizer():
    adam = AdamSettings(learning_rate=0.3, betas=(0.5, 0.6), epsilon=1e-3, weight_decay=0.1)
    group = build_learner(nn.Linear(2, 2), TrainingSettings(optimizer=adam), "cpu").optimizer.param_groups[0]
    assert {name: group[name] for name in ("lr", "betas", "eps", "weight_decay")} == {
        "lr": 0.3,
        "betas": (0.5, 0.6),
        "eps": 1e-3,
        "weight_decay": 0.1,
    }


@pytest.mark.parametrize(("precision", "inside"), [("float32", torch.float32), ("bf16", torch.bfloat16)])
def test_precision_is_that_of_the_forward_pass_alone(precision, inside):
    seen = []
    module = nn.Sequential(nn.Linear(2, 2), nn.Identity())
    module[1].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    learner = build_learner(module, TrainingSettings(precision=precision), "cpu")
    output = learner.model(torch.ones(1, 2))
    learner.fabric.backward(output.sum())
    assert seen == [inside]
    assert output.dtype == torch.float32
    assert {tensor.dtype for tensor in [*learner.gradients(), *module.parameters()]} == {torch.float32}


def test_a_shared_tensor_is_saved_once():
    module = nn.ModuleDict({"first": nn.Linear(2, 2), "second": nn.Linear(2, 2)})
    module["second"].weight = module["first"].weight
    assert sorted(weights_of(module)) == ["first.bias", "first.weight", "second.bias"]

"""A small sweep of fast trials."""

import copy

import pytest

from structattn.settings.sweep import SweepSettings

TREE = {
    "base": {
        "task": "formal_language",
        "prepare": {"train": 40, "valid": 10, "test_per_length": 1, "train_lengths": [2, 6], "test_lengths": [2, 8]},
        "model": {"d_model": 4, "d_ff": 4, "num_heads": 1, "layers": "1"},
        "training": {"max_updates": 12, "checkpoint_every": 2},
    },
    "grid": {
        "language": {"w#w^R": {"prepare.language": "marked-reversal"}, "Dyck": {"prepare.language": "dyck"}},
        "model": {"Tf": {}, "Tf+Sup": {"model.layers": "superposition-2"}},
    },
    "random": {"training.optimizer.learning_rate": {"low": 0.0005, "high": 0.01}},
    "restarts": 2,
}


@pytest.fixture
def tree():
    return copy.deepcopy(TREE)


@pytest.fixture
def sweep(tree):
    return SweepSettings.model_validate(tree)

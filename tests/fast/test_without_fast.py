"""Without the package ``fast``, everything else works, by modules."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CONTRACT = "tests/contracts/test_layers.py"
CHOSEN = "(softmax or nondeterministic) and (step or width)"
TRAINING = """
import without_fast, sys, torch, structattn
from structattn.models.builders.models import build_model
from structattn.settings.transformer import LanguageModelSettings
from structattn.settings.training import TrainingSettings
from structattn.training.learner import build_learner

settings = {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": "1"}
model = build_model(LanguageModelSettings.model_validate(settings), 6)
assert structattn.accelerate(model) is model
learner = build_learner(model, TrainingSettings(), "cpu")
assert learner.accelerated is learner.model
learner.accelerated(torch.tensor([[1, 3, 4]])).sum().backward()
import structattn.cli.app, structattn.loading.evaluate, structattn.loading.runs
assert not any(name.startswith("structattn.fast") for name in sys.modules)
"""


def run(*arguments):
    """Run Python where ``fast`` cannot be imported."""
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    command = [sys.executable, *arguments]
    found = subprocess.run(
        command, cwd=HERE.parents[1], env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    return found.stdout


@pytest.mark.apart
def test_training_runs():
    run("-c", TRAINING)


@pytest.mark.slow
def test_the_contract_of_layers_holds():
    options = ["-q", "-p", "without_fast", "-p", "no:cacheprovider", "-m", "not slow", "-k", CHOSEN]
    assert " passed" in run("-m", "pytest", *options, CONTRACT)


def test_an_error_of_the_package_itself_is_not_hidden(monkeypatch):
    acceleration = pytest.importorskip("structattn.acceleration")

    def broken(name):
        raise ModuleNotFoundError("No module named 'nothing'", name="nothing")

    monkeypatch.setattr(acceleration, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="nothing"):
        acceleration.accelerate(None)

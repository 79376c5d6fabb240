"""A task trains the kinds of models that it can, and refuses the others before anything is written."""

import pytest

from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError
from structattn.tasks.registry import TASKS, require_suited
from structattn.training.train import train


@pytest.mark.parametrize("task", TASKS)
def test_other_models_are_refused(task):
    first = "encoder_decoder" if task == "translation" else "transformer"
    require_suited(task, first)
    with pytest.raises(SettingsError, match=f"model.kind: the task {task!r} trains {first!r}.*, got 'perceptron'"):
        require_suited(task, "perceptron")


def test_a_run_is_refused(prepared, tmp_path):
    model = {"kind": "encoder_decoder"}
    settings = resolve_settings({"task": "language_modeling", "data": str(prepared().path), "model": model})
    with pytest.raises(SettingsError, match="got 'encoder_decoder'"):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()

"""A task trains the kinds of models that it can, and refuses the others before anything is written."""

from typing import get_args

import pytest

from structattn.settings.run import RunSettings, resolve_settings
from structattn.settings.tasks import TASK_DESCRIPTIONS
from structattn.support.errors import SettingsError
from structattn.tasks.registry import TASKS, require_suited
from structattn.training.train import train


def test_settings_registry_and_descriptions_have_the_same_tasks():
    assert set(get_args(RunSettings.model_fields["task"].annotation)) == set(TASKS) == set(TASK_DESCRIPTIONS)


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

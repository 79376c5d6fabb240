"""The registry of tasks, and the models that each of them can train."""

import ast
import importlib
import inspect
from pathlib import Path

import pytest

from structattn.settings.run import TASK_DESCRIPTIONS, RunSettings, resolve_settings
from structattn.support import imports
from structattn.support.errors import SettingsError
from structattn.tasks import registry
from structattn.tasks.registry import TASKS, require_trainable
from structattn.training.run_training import train


def test_settings_registry_and_descriptions_have_the_same_tasks():
    schema = RunSettings.model_json_schema()["properties"]["task"]
    assert schema["enum"] == list(TASKS) == list(TASK_DESCRIPTIONS)


@pytest.mark.parametrize("task", TASKS)
def test_a_model_that_the_task_cannot_train_is_rejected(task):
    first = {"translation": "encoder_decoder", "masked_language_modeling": "masked"}.get(task, "transformer")
    require_trainable(task, first)
    with pytest.raises(SettingsError, match=f"model.kind: the task {task!r} trains {first!r}.*, got 'perceptron'"):
        require_trainable(task, "perceptron")


def test_such_a_run_is_rejected_before_anything_is_written(prepared, tmp_path):
    model = {"kind": "encoder_decoder"}
    settings = resolve_settings({"task": "language_modeling", "data": str(prepared().path), "model": model})
    with pytest.raises(SettingsError, match="got 'encoder_decoder'"):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_a_topic_offers_exists(monkeypatch):
    """Names of functions are strings, so that their modules are imported when they are first asked for."""
    names = list[str]()
    monkeypatch.setattr(imports, "lazy_function", lambda *name: names.append(name))
    importlib.reload(registry)
    monkeypatch.undo()
    importlib.reload(registry)
    assert len(names) > 15
    for module, name in names:
        assert callable(getattr(importlib.import_module(module), name))


def test_every_task_has_the_same_files():
    """Each task's folder has ``task.py``, ``batches.py``, ``evaluate.py`` and ``predict.py``, and none is hollow."""
    folders = {path.parent for path in Path(inspect.getfile(registry)).parent.glob("*/task.py")}
    assert len(folders) == 5
    for folder in folders:
        for name in ("task.py", "batches.py", "evaluate.py", "predict.py"):
            definitions = ast.parse((folder / name).read_text(encoding="utf-8")).body
            assert sum(isinstance(each, ast.FunctionDef | ast.ClassDef) for each in definitions) >= 1, (folder, name)

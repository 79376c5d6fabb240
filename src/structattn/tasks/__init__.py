"""Training tasks: each one provides batches, a loss and validation scores to the training loop.

- ``TASKS``: every task by the name it has in settings, with its ``TaskKind``.
- ``FormalLanguage``, ``Transduction``, ``TaskKind``: what ``structattn.register`` takes.
- ``Task``: the protocol that the training loop uses; ``Scores``: the result of a validation.
- ``require_trainable``: reject a kind of model that a task cannot train.

A new task is one folder with ``task.py``, ``batches.py``, ``evaluate.py`` and ``predict.py``, and one entry in
``registry.py``.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.tasks.registry import TASKS, FormalLanguage, TaskKind, Transduction, require_trainable
    from structattn.tasks.task import Scores, Task

__all__ = ["TASKS", "FormalLanguage", "Scores", "Task", "TaskKind", "Transduction", "require_trainable"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "TASKS": "structattn.tasks.registry",
        "FormalLanguage": "structattn.tasks.formal_languages.registry",
        "Scores": "structattn.tasks.task",
        "Task": "structattn.tasks.task",
        "TaskKind": "structattn.tasks.registry",
        "Transduction": "structattn.tasks.transductions.transduction",
        "require_trainable": "structattn.tasks.registry",
    },
)

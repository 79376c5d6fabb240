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
    from structattn.tasks.formal_languages.registry import FormalLanguage
    from structattn.tasks.registry import TASKS, TaskKind, require_trainable
    from structattn.tasks.task import Scores, Task
    from structattn.tasks.transductions.transduction import Transduction

__all__ = ["TASKS", "FormalLanguage", "Scores", "Task", "TaskKind", "Transduction", "require_trainable"]

__getattr__, __dir__ = lazy_exports(__name__)

"""Training tasks: each one provides batches, a loss and validation scores to the training loop.

- ``TASKS``: every task by the name it has in settings, with its ``TaskKind``.
- ``FormalLanguage`` (a ``Language`` and its name), ``Transduction``, ``TaskKind``: what ``structattn.register`` takes.
- ``Task``: the protocol that the training loop uses; ``Scores``: the result of a validation.
- ``formal_language_task``: the task of formal languages, from which tasks with another loss can be made.
- ``require_trainable``: reject a kind of model that a task cannot train.
- ``read_language_file`` reads a ``LanguageFile``: a grammar, automaton or regular expression with its language;
  ``grammar_text`` writes a ``Grammar`` of ``Rule``s, which ``rule`` makes.
- ``Tree``, ``Leaf``: constituency trees; ``binary_splits``: the splits of one as ``tree_regularization`` takes them.

A new task is one folder with ``task.py``, ``batches.py``, ``evaluate.py`` and ``predict.py``, and one entry in
``registry.py``.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.tasks.formal_languages.grammar import Grammar, Rule, rule
    from structattn.tasks.formal_languages.language_files.grammar_file import grammar_text
    from structattn.tasks.formal_languages.language_files.language_file import LanguageFile, read_language_file
    from structattn.tasks.formal_languages.registry import FormalLanguage, Language
    from structattn.tasks.language_modeling.task import formal_language_task
    from structattn.tasks.parsing.trees import Leaf, Tree, binary_splits
    from structattn.tasks.registry import TASKS, TaskKind, require_trainable
    from structattn.tasks.task import Scores, Task
    from structattn.tasks.transductions.transduction import Transduction

__all__ = [
    "TASKS",
    "FormalLanguage",
    "Grammar",
    "Language",
    "LanguageFile",
    "Leaf",
    "Rule",
    "Scores",
    "Task",
    "TaskKind",
    "Transduction",
    "Tree",
    "binary_splits",
    "formal_language_task",
    "grammar_text",
    "read_language_file",
    "require_trainable",
    "rule",
]

__getattr__, __dir__ = lazy_exports(__name__)

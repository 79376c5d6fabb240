"""All tasks by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from structattn.data.folders import PreparedFolder
from structattn.settings.run import RunSettings
from structattn.support.errors import SettingsError
from structattn.tasks.formal_language.scores import split_lower_bound as formal_language_bound
from structattn.tasks.formal_language.task import formal_language_task
from structattn.tasks.language_modeling.scores import split_lower_bound as text_bound
from structattn.tasks.language_modeling.task import language_modeling_task
from structattn.tasks.task import Task
from structattn.tasks.transduction.task import autoregressive_transduction_task, masked_transduction_task
from structattn.tasks.translation.task import translation_task


@dataclass(frozen=True)
class TaskKind:
    """A kind of task.

    Args:
        build: makes the task of a prepared folder, given the settings of the run.
        lower_bound: the least cross-entropy that is possible on a split, nats per symbol, where it is known.
        models: the kinds of models that it can train.
    """

    build: Callable[[PreparedFolder, RunSettings], Task[Any]]
    lower_bound: Callable[[PreparedFolder, str], float | None]
    models: tuple[str, ...]


def _no_bound(prepared: PreparedFolder, split: str) -> None:
    """Answers are determined by what is asked: nothing to bound."""


_TRANSLATING = ("encoder_decoder", "two_stream_encoder_decoder")
_CAUSAL = ("transformer", "two_stream", "lstm", "rnn")  # kinds of models that predict the next token

TASKS: Mapping[str, TaskKind] = MappingProxyType(
    {
        "formal_language": TaskKind(formal_language_task, formal_language_bound, _CAUSAL),
        "language_modeling": TaskKind(language_modeling_task, text_bound, _CAUSAL),
        "masked_transduction": TaskKind(masked_transduction_task, _no_bound, (*_CAUSAL, "masked")),
        "autoregressive_transduction": TaskKind(autoregressive_transduction_task, _no_bound, _CAUSAL),
        "translation": TaskKind(translation_task, _no_bound, _TRANSLATING),
    }
)


def require_suited(task: str, model: str) -> None:
    """Refuse a kind of model that a task cannot train.

    Raises:
        SettingsError: with the kinds that it can.
    """
    trainable = TASKS[task].models
    if model not in trainable:
        raise SettingsError(f"model.kind: the task {task!r} trains {' or '.join(map(repr, trainable))}, got {model!r}")

"""All tasks by name; their descriptions are in `structattn.settings.tasks`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from structattn.settings.run import RunSettings
from structattn.support.errors import SettingsError
from structattn.tasks.language_modeling.task import formal_language_task, language_modeling_task
from structattn.tasks.masked.task import masked_language_modeling_task
from structattn.tasks.task import AnyTask
from structattn.tasks.transductions.task import transduction_task
from structattn.tasks.translation.task import translation_task
from structattn.text.folders.prepared import PreparedFolder


@dataclass(frozen=True)
class TaskKind:
    """A kind of task.

    Args:
        build: makes the task from a prepared folder and the settings of the run.
        models: the kinds of models it can train.
    """

    build: Callable[[PreparedFolder, RunSettings], AnyTask]
    models: tuple[str, ...]


_ENCODER_DECODER = ("encoder_decoder", "two_stream_encoder_decoder")
_CAUSAL = ("transformer", "two_stream", "lstm", "rnn", "gpt2")
_MASKED = ("masked", "roberta")

TASKS: Mapping[str, TaskKind] = MappingProxyType(
    {
        "formal_language": TaskKind(formal_language_task, _CAUSAL),
        "language_modeling": TaskKind(language_modeling_task, _CAUSAL),
        "masked_language_modeling": TaskKind(masked_language_modeling_task, _MASKED),
        "masked_transduction": TaskKind(transduction_task, (*_CAUSAL, *_MASKED)),
        "autoregressive_transduction": TaskKind(transduction_task, _CAUSAL),
        "translation": TaskKind(translation_task, _ENCODER_DECODER),
    }
)


def require_trainable(task: str, model: str) -> None:
    """Reject a kind of model that a task cannot train.

    Raises:
        SettingsError: the message lists the kinds that it can train.
    """
    trainable = TASKS[task].models
    if model not in trainable:
        raise SettingsError(f"model.kind: the task {task!r} trains {' or '.join(map(repr, trainable))}, got {model!r}")

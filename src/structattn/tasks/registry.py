"""All tasks by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from structattn.data.prepared import PreparedFolder
from structattn.settings.training import TrainingSettings
from structattn.tasks.formal_language.scores import split_lower_bound as formal_language_bound
from structattn.tasks.formal_language.task import formal_language_task
from structattn.tasks.language_modeling.scores import split_lower_bound as text_bound
from structattn.tasks.language_modeling.task import language_modeling_task
from structattn.tasks.task import Task


@dataclass(frozen=True)
class TaskKind:
    """A kind of task.

    Args:
        build: makes the task of a prepared folder, given the training settings and the seed.
        lower_bound: the least cross-entropy that is possible on a split, nats per symbol, where it is known.
        description: one line.
    """

    build: Callable[[PreparedFolder, TrainingSettings, int], Task]
    lower_bound: Callable[[PreparedFolder, str], float | None]
    description: str


TASKS: Mapping[str, TaskKind] = MappingProxyType(
    {
        "formal_language": TaskKind(
            formal_language_task, formal_language_bound, "predict the symbols of a formal language"
        ),
        "language_modeling": TaskKind(
            language_modeling_task, text_bound, "predict the tokens of text, in sentences or as a stream"
        ),
    }
)

"""Everything that influences the next step of a run, in one value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from torch import Tensor

Count = Annotated[int, Field(ge=0)]

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class ScheduleState:
    """Where the learning-rate schedule stands.

    Args:
        learning_rate: the rate of the next update, before any warm-up.
        best: the best perplexity that the schedule has seen.
        bad: validations since then that were not better by enough.
    """

    __pydantic_config__ = _STRICT

    learning_rate: float
    best: float | None = None
    bad: Count = 0


@dataclass(frozen=True)
class Progress:
    """How far a run has come, counted in completed updates.

    Args:
        schedule: the learning-rate schedule's state.
        update: completed updates.
        epoch: completed epochs; with the seed it decides the order of the batches.
        position: batches of the epoch at hand that completed updates have consumed.
        last_validation: the update after which the model was last validated.
        best_score: the lowest validation cross-entropy, nats per symbol; or the highest BLEU with its sign turned.
        best_update: the update at which it was reached.
        bad_validations: validations since then.
    """

    __pydantic_config__ = _STRICT

    schedule: ScheduleState
    update: Count = 0
    epoch: Count = 0
    position: Count = 0
    last_validation: Count = 0
    best_score: float | None = None
    best_update: Count | None = None
    bad_validations: Count = 0


@dataclass(frozen=True)
class TrainingState:
    """All of a run's state between two updates; gradients are never carried over, so there are none.

    Args:
        weights: the model's tensors by name.
        optimizer: the optimizer's tensors, as ``parameter/quantity``.
        generators: the states of torch's generators by device, in base64.
        progress: counters, best score, schedule.
        event_log_length: bytes of the event log that belong to this state.
    """

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    generators: Mapping[str, str]
    progress: Progress
    event_log_length: int


@dataclass(frozen=True)
class StateFile:
    """The part of the state that is kept as JSON."""

    __pydantic_config__ = _STRICT

    format_version: Literal[1]
    progress: Progress
    generators: dict[str, str]
    event_log_length: Count


_STATE_FILE = TypeAdapter(StateFile)


def state_to_json(state: TrainingState) -> bytes:
    """What `state.json` holds."""
    file = StateFile(1, state.progress, dict(state.generators), state.event_log_length)
    return _STATE_FILE.dump_json(file, indent=2) + b"\n"


def state_from_json(content: bytes) -> StateFile:
    """Read what `state_to_json` wrote.

    Raises:
        ValueError: a field is missing, unknown, or has an impossible value.
    """
    return _STATE_FILE.validate_json(content)

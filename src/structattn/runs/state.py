"""The training state: everything that influences the next update of a run."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter
from torch import Tensor

from structattn.support.reading import MAX_COUNT

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]

EMPTY_SHA256 = hashlib.sha256().hexdigest()
"""The SHA-256 of no bytes."""

_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class ScheduleState:
    """State of the learning-rate schedule.

    Args:
        learning_rate: learning rate of the next update, before warm-up.
        best: best validation perplexity so far.
        bad: number of validations since then without sufficient improvement.
    """

    __pydantic_config__ = _STRICT

    learning_rate: float
    best: float | None = None
    bad: Count = 0


@dataclass(frozen=True)
class Progress:
    """Progress of a run, counted in completed updates.

    Args:
        schedule: state of the learning-rate schedule.
        update: number of completed updates.
        epoch: number of completed epochs; determines the batch order together with the seed.
        position: number of batches of the current epoch that completed updates have consumed.
        last_validation: update of the last validation.
        best_score: lowest validation cross-entropy in nats per symbol, or lowest negative BLEU.
        best_update: update at which it was reached.
        bad_validations: number of validations since then.
        examples_since_validation: number of examples since the last validation, or, where
            ``validate_every`` counts examples, since the last multiple.
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
    examples_since_validation: Count = 0


@dataclass(frozen=True)
class LogPrefix:
    """The part of the event log that was written before a checkpoint.

    Args:
        length: number of bytes.
        sha256: their hexadecimal SHA-256.
    """

    __pydantic_config__ = _STRICT

    length: Count = 0
    sha256: str = EMPTY_SHA256


@dataclass(frozen=True)
class TrainingState:
    """State of a run between two updates. Gradients are not part of it: they do not outlive an update.

    Args:
        weights: model tensors by name.
        optimizer: optimizer tensors by ``parameter/quantity``.
        generators: base64-encoded states of torch's random generators by device.
        progress: counters, best score and schedule state.
        event_log: the event log at this state.
    """

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    generators: Mapping[str, str]
    progress: Progress
    event_log: LogPrefix


@dataclass(frozen=True)
class StateFile:
    """Contents of `state.json`: the training state without tensors."""

    __pydantic_config__ = _STRICT

    format_version: Literal[1]
    progress: Progress
    generators: dict[str, str]
    event_log: LogPrefix


_STATE_FILE = TypeAdapter(StateFile)


def state_to_json(state: TrainingState) -> bytes:
    """Serialize everything but the tensors for `state.json`."""
    file = StateFile(1, state.progress, dict(state.generators), state.event_log)
    return _STATE_FILE.dump_json(file, indent=2) + b"\n"


def state_from_json(content: bytes) -> StateFile:
    """Parse and validate the output of `state_to_json`.

    Raises:
        ValueError: a field is missing, unknown or invalid.
    """
    return _STATE_FILE.validate_json(content)

"""The run card: settings digest, data, software versions and hardware of a run; and its summary."""

import functools
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

import torch
from pydantic import Field

from structattn.runs.checkpoint import Count, Identity, Progress
from structattn.settings.run import RunSettings
from structattn.support import __version__
from structattn.support.devices import processor_name
from structattn.support.json_files import Shape, check_shape
from structattn.support.processes import available_cores

FORMAT_VERSION = 1
PACKAGES = ("torch", "numpy", "safetensors", "pydantic")


class _Data(Shape):
    path: str
    kind: str
    digest: str


class _Hardware(Shape):
    threads: int


class _EventLog(Shape):
    length: Count
    sha256: str


class _Result(Shape):
    event_log: _EventLog
    reason: str
    update: Count
    epoch: Count
    best_update: Count | None
    best_cross_entropy: float | None


class _Extension(Shape):
    update: Count
    reason: str | None
    limits: dict[str, Any]


class _InitialWeights(Shape):
    run: str
    sha256: str


class _Plugin(Shape):
    name: str
    version: str | None
    sha256: str | None


class _Card(Shape):
    format_version: Literal[1]
    id: str | None = None
    version: str
    task: str
    seed: int
    parameters: int
    vocabulary_size: int
    settings_digest: str
    data: _Data
    pretrained: dict[str, str] | None = None
    tokenizer: dict[str, str] | None = None
    initial_weights: _InitialWeights | None = None
    plugins: list[_Plugin] = Field(default=[])
    extensions: list[_Extension] = Field(default=[])
    environment: dict[str, Any]
    hardware: _Hardware
    result: _Result | None


def check_card(card: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a run card unchanged if it has the fields of one.

    Raises:
        DataError: a field is missing or invalid; the message names the first one.
    """
    return check_shape(_Card, card, path)


def run_card(
    settings: RunSettings,
    data_kind: str,
    vocabulary_size: int,
    identity: Identity,
    parameters: int,
    device: torch.device,
    processes: int = 1,
    pretrained: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the card of a new run, with the digests of pretrained files; ``result`` is filled in when the run ends."""
    return {
        "format_version": FORMAT_VERSION,
        "id": token_hex(16),  # stays, where the run is moved or extended
        "version": __version__,
        "task": settings.task,
        "seed": settings.seed,
        "parameters": parameters,
        "vocabulary_size": vocabulary_size,
        "settings_digest": identity.settings,
        "data": {"path": str(settings.data), "kind": data_kind, "digest": identity.data},
        "environment": environment(),
        "hardware": hardware(device) | {"processes": processes},
        "batches_per_update": settings.training.gradient_accumulation_steps,
        **({} if pretrained is None else {"pretrained": dict(pretrained)}),
        "result": None,
    }


def environment() -> dict[str, Any]:
    """Return the versions of Python, the operating system and the numerical packages."""
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        **{name: _installed(name) for name in PACKAGES},
    }


def hardware(device: torch.device) -> dict[str, Any]:
    """Return the processor, the cores that this process may use, its threads, and the device."""
    return {
        "processor": processor_name(),
        "cores": available_cores(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


@functools.cache
def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


PAUSED = "paused"
"""The reason of a run that has not ended, but was paused after a number of epochs or updates."""

END_FIELDS = ("reason", "update", "epoch", "best_update", "best_cross_entropy")


@dataclass(frozen=True)
class TrainingSummary:
    """Result of a training run.

    Args:
        reason: why it ended: ``epochs``, ``updates``, ``early_stopping`` or ``time``; ``paused`` if it has not ended.
        best_cross_entropy: best validation cross-entropy in nats per symbol; None if models are selected by BLEU.
        resumed_from: update from which this start resumed; None for a new run.
        already_finished: the run was finished before this start; nothing was trained.
        best_bleu: best validation BLEU if models are selected by BLEU.
    """

    reason: str
    update: int
    epoch: int
    best_update: int | None
    best_cross_entropy: float | None
    resumed_from: int | None = None
    already_finished: bool = False
    best_bleu: float | None = None

    def end_values(self) -> dict[str, Any]:
        """Return the fields of the end event; they do not depend on interruptions."""
        values = asdict(self)
        bleu = {} if self.best_bleu is None else {"best_bleu": self.best_bleu}
        return {field: values[field] for field in END_FIELDS} | bleu


def summary_of(
    reason: str, progress: Progress, resumed_from: int | None, select_by: Literal["cross_entropy", "bleu"]
) -> TrainingSummary:
    """Return the summary of a run that has just ended."""
    score = progress.best_score
    by_bleu = score is not None and select_by == "bleu"
    return TrainingSummary(
        reason,
        progress.update,
        progress.epoch,
        progress.best_update,
        best_cross_entropy=None if by_bleu else score,
        resumed_from=resumed_from,
        best_bleu=-score if score is not None and by_bleu else None,
    )


def summary_of_event(end: dict[str, Any]) -> TrainingSummary:
    """Return the summary of a run that was already finished, from its end event."""
    values: dict[str, Any] = {field: end.get(field) for field in END_FIELDS}
    return TrainingSummary(**values, already_finished=True, best_bleu=end.get("best_bleu"))

"""The run card: settings digest, data, software versions and hardware of a run."""

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field

from structattn.runs.checkpoint import Identity
from structattn.runs.state import Count
from structattn.settings.run import RunSettings
from structattn.support import __version__
from structattn.support.devices import processor_name
from structattn.support.json_files import Shape, check_shape

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


class _Card(Shape):
    format_version: Literal[1]
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
    """Return the card of a new run; ``result`` is filled in when the run ends.

    Args:
        settings: the resolved settings.
        data_kind: the kind of the prepared data.
        vocabulary_size: the number of ids.
        identity: digests of the settings and the data.
        parameters: the number of parameters.
        device: the device of the model.
        processes: the number of processes.
        pretrained: SHA-256 of each file of pretrained weights; None if there are none.
    """
    return {
        "format_version": FORMAT_VERSION,
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
    """Return the processor, number of cores and threads, and device."""
    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None

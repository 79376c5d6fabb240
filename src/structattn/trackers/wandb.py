"""Weights & Biases: offline, unless the environment says otherwise."""

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from structattn.support.files import create_folder_unflushed
from structattn.support.imports import require_modules
from structattn.trackers.tracker import RunDescription


class WeightsAndBiases:
    """A run with an identifier of its own; ``wandb sync`` uploads one that was logged offline.

    Each replay writes all events: the server drops the steps that it has of the same identifier.

    Args:
        run: the run. The environment variables ``WANDB_MODE``, ``WANDB_PROJECT`` and so on count.

    Raises:
        UsageError: the library is not installed.
    """

    def __init__(self, run: RunDescription) -> None:
        require_modules("wandb", "wandb")
        create_folder_unflushed(run.place)
        self._library: Any = import_module("wandb")
        self._run = self._library.init(
            project=os.environ.get("WANDB_PROJECT", "structattn"),
            dir=str(run.place),
            mode=os.environ.get("WANDB_MODE", "offline"),
            id=run.identity[:16],
            name=run.name,
            resume="allow" if os.environ.get("WANDB_MODE") == "online" else None,
            config=dict(run.settings),
            settings=self._library.Settings(silent=True, console="off"),
        )

    def last_steps(self) -> Mapping[str, int]:
        """Return nothing: the server knows."""
        return {}

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Add the values to the history."""
        self._run.log({f"{kind}/{name}": value for name, value in values.items()}, step=step)

    def flush(self) -> None:
        """Do nothing: the library writes by itself."""

    def close(self, finished: bool) -> None:
        """Finish the run, and wait until its file is written; other runs of this process are finished, too."""
        self._run.finish()
        self._library.teardown()  # `finish` returns before the library's service has written the file

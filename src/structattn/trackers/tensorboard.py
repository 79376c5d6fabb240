"""TensorBoard event files."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from structattn.support.files import create_folder_unflushed, remove_leftover_folder
from structattn.support.imports import require_modules
from structattn.trackers.tracker import RunDescription


class TensorBoard:
    """A folder with one event file, which begins anew with each replay.

    Args:
        run: the run.

    Raises:
        UsageError: the library is not installed.
    """

    def __init__(self, run: RunDescription) -> None:
        require_modules("tensorboard", "tensorboard")
        remove_leftover_folder(run.place)
        create_folder_unflushed(run.place)
        library: Any = import_module("torch.utils.tensorboard")
        self._writer = library.SummaryWriter(str(run.place))
        indented = "".join(f"    {line}\n" for line in run.settings_text.splitlines())
        self._writer.add_text("settings", indented, 0)

    def last_steps(self) -> Mapping[str, int]:
        """Return nothing: the file is new."""
        return {}

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Add scalars."""
        for name, value in values.items():
            self._writer.add_scalar(f"{kind}/{name}", value, step)

    def flush(self) -> None:
        """Write the scalars to the file."""
        self._writer.flush()

    def close(self, finished: bool) -> None:
        """Close the file."""
        self._writer.close()

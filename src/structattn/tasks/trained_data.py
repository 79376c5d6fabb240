"""The data that a run was trained on, opened where they are now."""

from pathlib import Path

from structattn.runs.folder import SWEEP_SETTINGS
from structattn.settings.run import RunSettings
from structattn.support.errors import CheckpointError, DataError
from structattn.text.folders.header import HEADER_NAME
from structattn.text.folders.prepared import PreparedFolder, open_prepared


def open_data(run_dir: Path, settings: RunSettings, data: Path | None) -> PreparedFolder:
    """Open the data of a run; their digest is not yet compared with that of the run.

    ``data``: the prepared folder; None: see ``present_path``.

    Raises:
        DataError: the prepared folder is missing or damaged.
    """
    path = present_path(run_dir, settings.data) if data is None else data
    if data is None and not (path / HEADER_NAME).exists():
        what = "not a prepared folder" if path.exists() else "no such folder"
        reason = f"the data of {run_dir}: {what}; give its present path as data=FOLDER, a keyword in Python"
        raise DataError(path, reason)
    return open_prepared(path)


def present_path(run_dir: Path, data: Path) -> Path:
    """Return the path of a run's data: the one in its settings, or in the folder of its sweep if that was moved."""
    sweep = run_dir.absolute().parent.parent
    moved = sweep / "data" / data.name
    return moved if not data.exists() and moved.exists() and (sweep / SWEEP_SETTINGS).exists() else data


def require_trained_on(trained: Path, digest: str, prepared: PreparedFolder) -> None:
    """Check the digest of the data that a run or a checkpoint was trained on.

    Raises:
        CheckpointError: the prepared folder has another; the message has both.
    """
    if digest != prepared.digest:
        raise CheckpointError(
            f"{trained}: was trained on data with digest {digest}; that of {prepared.path} is {prepared.digest}"
        )

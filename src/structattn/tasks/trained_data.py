"""The data that a run was trained on, opened where they are now."""

from pathlib import Path

from structattn.settings.run import RunSettings
from structattn.support.errors import CheckpointError, DataError
from structattn.text.folders.prepared import PreparedFolder, open_prepared


def open_data(run_dir: Path, settings: RunSettings, data: Path | None) -> PreparedFolder:
    """Open the data of a run; their digest is not yet compared with that of the run.

    ``run_dir`` is for messages. ``data``: the prepared folder; None: the path in the settings.

    Raises:
        DataError: the prepared folder is missing or damaged.
    """
    if data is None and not settings.data.exists():
        reason = f"the data of {run_dir}: no such folder; give its present path as data=FOLDER, a keyword in Python"
        raise DataError(settings.data, reason)
    return open_prepared(data or settings.data)


def require_trained_on(trained: Path, digest: str, prepared: PreparedFolder) -> None:
    """Check the digest of the data that a run or a checkpoint was trained on.

    Raises:
        CheckpointError: the prepared folder has another; the message has both.
    """
    if digest != prepared.digest:
        raise CheckpointError(
            f"{trained}: was trained on data with digest {digest}; that of {prepared.path} is {prepared.digest}"
        )

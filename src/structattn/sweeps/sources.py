"""The source files of a trial's data, and whether they have changed since the data were prepared."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from structattn.support.errors import DataError
from structattn.support.files import cached_sha256, sha256_of_file
from structattn.support.json_files import Shape, check_shape, read_json, write_json
from structattn.sweeps.trials import Trial

_KIND: Final = "sources"


def write_sources(trial: Trial) -> None:
    """Write the digests of a trial's source files beside the folder of its data, before these are prepared."""
    write_json(_path(trial), _KIND, {"files": _digests(trial)})


def recorded_sources(trial: Trial) -> dict[str, str]:
    """Return the digests of a trial's source files, by name, when its data were prepared.

    Raises:
        DataError: the file that has them is damaged.
    """
    if trial.prepare is None:
        return _digests(trial)
    if not _path(trial).exists():  # prepared by an earlier version
        return {}
    files: dict[str, str] = check_shape(_SourcesShape, read_json(_path(trial), _KIND), _path(trial))["files"]
    return files


def require_same_prepared_sources(trials: Iterable[Trial]) -> None:
    """Check that no source file has changed since the data of the trials were prepared.

    Raises:
        DataError: a file has changed.
    """
    prepared = {trial.settings.data: trial for trial in trials if trial.prepare is not None}
    for folder, trial in prepared.items():
        if folder.exists():
            require_same_sources(recorded_sources(trial), trial, folder)


def require_same_sources(recorded: Mapping[str, str], trial: Trial, made: Path) -> None:
    """Check that the source files of a trial have not changed; those that are not there cannot be compared.

    Args:
        recorded: the digests of the files, by name, when the data were prepared.
        trial: the trial.
        made: the file or folder that was made from them, for the message.

    Raises:
        DataError: a file has changed.
    """
    for name, path in _files(trial).items():
        if name in recorded and (found := cached_sha256(path, recorded[name])) != recorded[name]:
            raise DataError(
                made,
                f"made when the SHA-256 of {path} was {recorded[name]}, which is now {found}; expected the same file, "
                "or one with another name",
            )


class _SourcesShape(Shape):
    files: dict[str, str]


def _path(trial: Trial) -> Path:
    return trial.settings.data.with_suffix(".sources.json")


def _digests(trial: Trial) -> dict[str, str]:
    return {name: sha256_of_file(path) for name, path in _files(trial).items()}


def _files(trial: Trial) -> dict[str, Path]:
    """Return the existing source files of a trial, by their names in its settings.

    For data that were prepared before, that is the header of their folder, which has the digests of the other files.
    """
    if trial.prepare is None:
        names = {"header.json": trial.settings.data / "header.json"}
    else:
        names = {file: Path(file) for file in trial.prepare.files}
    return {name: path for name, path in names.items() if path.is_file()}

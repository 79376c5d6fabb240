"""Run folders with their recordings, for reports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from structattn.explorer.recording import RecordedExample, Recording
from structattn.explorer.recording_files import read_recording
from structattn.report.runs import Run, json_files, named_folders, read_run


@dataclass(frozen=True)
class RecordedRun(Run):
    """A run with its recordings by name of their files."""

    recordings: Mapping[str, Recording]

    @property
    def examples(self) -> list[RecordedExample]:
        """The recorded examples and texts; an example of a split that several files hold counts once."""
        found: dict[object, RecordedExample] = {}
        for name, recording in self.recordings.items():
            for number, each in enumerate(recording.examples):
                found.setdefault((name, number) if each.example is None else (each.split, each.example), each)
        return list(found.values())


def read_recorded_run(folder: Path, name: str | None = None) -> RecordedRun:
    """Read a run folder with its recordings; see ``read_run``.

    Raises:
        StructattnError: the folder is not a run folder.
        DataError, SettingsError, CheckpointError: a file in it is damaged; the message names it.
    """
    run = read_run(folder, name)
    recordings = {path.stem: read_recording(path) for path in json_files(folder / "records")}
    return RecordedRun(**vars(run), recordings=recordings)


def read_recorded_runs(folders: Sequence[Path]) -> list[RecordedRun]:
    """Read run folders under distinct names; a folder given twice is read once."""
    return [read_recorded_run(folder, name) for folder, name in named_folders(folders)]

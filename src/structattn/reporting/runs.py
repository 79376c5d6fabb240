"""Read run folders for a report: settings, run card, events, scores, records and analyses."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structattn.analysis.recording import RecordedExample, Recording
from structattn.analysis.recording_files import read_recording
from structattn.reporting.shapes import ScoreShape, analysis_shape
from structattn.runs.events import verified_events
from structattn.runs.folder import existing_run
from structattn.runs.logs import mean_rate
from structattn.support.errors import StructattnError
from structattn.support.json_files import Shape, check_shape, read_json

SPLITS = ("train", "valid", "test", "gen")

_logger = logging.getLogger("structattn")


@dataclass(frozen=True)
class Run:
    """The content of a run folder.

    ``scores`` maps splits to scores; ``recordings`` and ``analyses`` map names of files to contents;
    ``tokens_per_second`` is the mean rate of training, None if it is not in the timing log.
    """

    name: str
    folder: Path
    settings: Mapping[str, Any]
    settings_text: str
    card: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    scores: Mapping[str, Mapping[str, Any]]
    recordings: Mapping[str, Recording]
    analyses: Mapping[str, Mapping[str, Any]]
    tokens_per_second: float | None

    @property
    def data(self) -> Mapping[str, Any]:
        """The description of the data; empty before the first evaluation."""
        return next((dict(score["data"]) for score in self.scores.values() if score.get("data")), {})

    @property
    def data_name(self) -> str:
        """The name of the data: the language and its variant, or the name of the prepared folder."""
        language = self.data.get("language")
        if language is None:
            return str(self.data.get("name") or Path(str(self.settings.get("data", "data"))).name)
        variant = self.data.get("variant")
        return f"{language} ({variant})" if variant else str(language)

    @property
    def model(self) -> str:
        """A short description of the model; empty before the first evaluation."""
        return next((str(score["model"]) for score in self.scores.values() if score.get("model")), "")

    @property
    def examples(self) -> list[RecordedExample]:
        """The recorded examples and texts; an example of a split that several files hold counts once."""
        found: dict[object, RecordedExample] = {}
        for name, recording in self.recordings.items():
            for number, each in enumerate(recording.examples):
                found.setdefault((name, number) if each.example is None else (each.split, each.example), each)
        return list(found.values())

    def analyses_of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the analyses of one kind."""
        return [content for content in self.analyses.values() if content.get("kind") == kind]

    def of(self, event: str) -> list[Mapping[str, Any]]:
        """Return the logged events of one type, in order."""
        return [line for line in self.events if line.get("event") == event]


def _split_order(name: str) -> tuple[int, str]:
    return (SPLITS.index(name) if name in SPLITS else len(SPLITS), name)


def _json_files(folder: Path) -> list[Path]:
    paths = sorted(folder.glob("*.json"), key=lambda path: _split_order(path.stem))
    return [path for path in paths if not path.name.startswith(".")]


def _read_all(folder: Path, kind: str, shape_of: Callable[[dict[str, Any]], type[Shape]]) -> dict[str, dict[str, Any]]:
    read = ((path, read_json(path, kind)) for path in _json_files(folder))
    return {path.stem: check_shape(shape_of(content), content, path) for path, content in read}


def read_run(folder: Path, name: str | None = None) -> Run:
    """Read a run folder. Scores, records and events may be missing, as in a run in progress.

    Raises:
        StructattnError: the folder is not a run folder.
        DataError, SettingsError, CheckpointError: a file in it is damaged; the message names it.
    """
    files = existing_run(folder)
    run = Run(
        name=name or folder.resolve().name,
        folder=folder,
        settings=files.read_settings().model_dump(mode="json"),
        settings_text=files.read_settings_text().decode(),
        card=files.read_card(),
        events=verified_events(files),
        scores=_read_all(folder / "scores", "scores", lambda _: ScoreShape),
        recordings={path.stem: read_recording(path) for path in _json_files(folder / "records")},
        analyses=_read_all(folder / "analyses", "analysis", analysis_shape),
        tokens_per_second=mean_rate(files.timing),
    )
    _warn_of_old_scores(run)
    return run


def _warn_of_old_scores(run: Run) -> None:
    """Log a warning if a run was trained further after its evaluation."""
    best = [event["update"] for event in run.of("validation") if event.get("improved")][-1:]
    current = {*best, *(event.get("update") for event in run.events[-1:])}
    for split, score in run.scores.items():
        if current and score.get("update") not in current:
            _logger.warning(
                "%s: the scores on %s are from update %s, but the best is now %s; run `structattn evaluate` again",
                *(run.folder, split, score.get("update"), best[0] if best else "unknown"),
            )


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest distinct suffixes of the paths."""
    parts = [folder.resolve().parts for folder in folders]
    depth = 1
    while len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    return ["/".join(part[-depth:]) for part in parts]


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """Read run folders under distinct names; a folder given twice is read once."""
    unique = list({folder.resolve(): folder for folder in folders}.values())
    if not unique:
        raise StructattnError("a report needs at least one run folder")
    return [read_run(folder, name) for folder, name in zip(unique, _names(unique), strict=True)]

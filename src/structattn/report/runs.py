"""Read run folders for a report: settings, run card, events, scores and analyses."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, get_args

from structattn.report.shapes import ANALYSIS_SHAPES, ScoreShape
from structattn.runs.folder import existing_run
from structattn.runs.logs import mean_rate
from structattn.runs.selection import best_updates, verified_events
from structattn.settings.prepare import Split
from structattn.settings.run import unit_of_loss
from structattn.support.environment import name_of, printable
from structattn.support.errors import StructattnError
from structattn.support.json_files import Shape, check_shape, read_json

SPLITS = get_args(Split)

_logger = logging.getLogger("structattn")


@dataclass(frozen=True)
class Run:
    """The content of a run folder.

    ``scores`` maps splits to scores, ``analyses`` names of files to contents; ``tokens_per_second`` is the mean rate of
    training, None if it is not in the timing log.
    """

    name: str
    folder: Path
    settings: Mapping[str, Any]
    settings_text: str
    card: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    scores: Mapping[str, Mapping[str, Any]]
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
        return str(language) if variant in (None, "faithful") else f"{language} ({variant})"

    @property
    def data_digest(self) -> str:
        """The digest of the data that it was trained on."""
        return str(self.card["data"]["digest"])

    @property
    def model(self) -> str:
        """A short description of the model; empty before the first evaluation."""
        return next((str(score["model"]) for score in self.scores.values() if score.get("model")), "")

    @property
    def unit(self) -> str:
        """What its losses and rates count."""
        return unit_of_loss(str(self.settings.get("task")))

    def analyses_of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the analyses of one kind."""
        return [content for content in self.analyses.values() if content.get("kind") == kind]

    def of(self, event: str) -> list[Mapping[str, Any]]:
        """Return the logged events of one type, in order."""
        return [line for line in self.events if line.get("event") == event]


def digests_of_suite(analysis: Mapping[str, Any]) -> frozenset[str]:
    """Return the digests of the files of a suite that was scored; older analyses have none."""
    return frozenset(analysis.get("sources", {}).values())


def units_of(runs: Sequence[Run], ending: str = "") -> str:
    """Return what the losses and rates of runs count, each with an ending: "token", "string", or both."""
    return " or ".join(sorted({run.unit + ending for run in runs}, reverse=True))


def json_files(folder: Path) -> list[Path]:
    """Return the JSON files of a folder, the splits first."""
    order = {name: number for number, name in enumerate(SPLITS)}
    paths = [path for path in folder.glob("*.json") if not path.name.startswith(".")]
    return sorted(paths, key=lambda path: (order.get(path.stem, len(SPLITS)), path.stem))


def _read_all(folder: Path, kind: str, shape_of: Callable[[dict[str, Any]], type[Shape]]) -> dict[str, dict[str, Any]]:
    read = ((path, read_json(path, kind)) for path in json_files(folder))
    return {path.stem: check_shape(shape_of(content), content, path) for path, content in read}


def read_run(folder: str | PathLike[str], name: str | None = None) -> Run:
    """Read a run folder. Scores, records and events may be missing, as in a run in progress.

    Raises:
        StructattnError: the folder is not a run folder.
        DataError, SettingsError, CheckpointError: a file in it is damaged; the message names it.
    """
    folder = Path(folder)
    files = existing_run(folder)
    run = Run(
        name=name_of(folder) if name is None else printable(name),
        folder=folder,
        settings=files.read_settings().model_dump(mode="json"),
        settings_text=files.read_settings_text().decode(),
        card=files.read_card(),
        events=verified_events(files),
        scores=_read_all(folder / "scores", "scores", lambda _: ScoreShape),
        analyses=_read_all(
            folder / "analyses", "analysis", lambda content: ANALYSIS_SHAPES.get(str(content.get("kind")), Shape)
        ),
        tokens_per_second=mean_rate(files.timing),
    )
    _warn_of_old_scores(run)
    return run


def _warn_of_old_scores(run: Run) -> None:
    """Log a warning if a run was trained further after its evaluation."""
    last = [event.get("update") for event in run.events[-1:]]
    for split, score in run.scores.items():
        scored = score.get("checkpoints") or [score.get("update")]  # averaged, the newest first
        best = sorted(best_updates(run.of("validation"), len(scored)), reverse=True)
        if last and scored != best and scored[:1] != last:
            _logger.warning(
                "%s: the scores on %s are from update %s, but the best is now %s; run `structattn evaluate` again",
                *(run.folder, split, *(", ".join(map(str, updates)) or "unknown" for updates in (scored, best))),
            )


def shortest_names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest distinct suffixes of the paths, as text; those of equal paths are equal."""
    parts = [(*map(name_of, reversed(folder.resolve().parents)), name_of(folder)) for folder in folders]
    depth = 1
    while len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    return ["/".join(part[-depth:]) for part in parts]


def named_folders(folders: Sequence[Path]) -> list[tuple[Path, str]]:
    """Return run folders with distinct names; a folder given twice appears once.

    Raises:
        StructattnError: there are none.
    """
    unique = list({folder.resolve(): folder for folder in folders}.values())
    if not unique:
        raise StructattnError("a report needs at least one run folder")
    return list(zip(unique, shortest_names(unique), strict=True))

"""Read run folders for a report: settings, run card, events, scores, records and analyses."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structattn.support.errors import DataError, StructattnError
from structattn.support.yaml import parse_yaml

SPLITS = ("train", "valid", "test")

_logger = logging.getLogger("structattn")


@dataclass(frozen=True)
class Run:
    """The content of a run folder.

    ``scores`` maps splits to scores; ``records`` and ``analyses`` map names to contents.
    """

    name: str
    folder: Path
    settings: Mapping[str, Any]
    settings_text: str
    card: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]
    scores: Mapping[str, Mapping[str, Any]]
    records: Mapping[str, Mapping[str, Any]]
    analyses: Mapping[str, Mapping[str, Any]]

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

    def analyses_of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the analyses of one kind."""
        return [content for content in self.analyses.values() if content.get("kind") == kind]

    def of(self, event: str) -> list[Mapping[str, Any]]:
        """Return the logged events of one type, in order."""
        return [line for line in self.events if line.get("event") == event]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(path, f"not a JSON file: {error}") from None
    if not isinstance(content, dict):
        raise DataError(path, f"holds {type(content).__name__}; expected a JSON object")
    return content


def _read_events(path: Path) -> list[dict[str, Any]]:
    """Read events; an incomplete last line, as left by a killed process, is skipped."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
        except ValueError as error:
            raise DataError(path, f"not JSON: {error}", line=number) from None
        if not isinstance(event, dict):
            raise DataError(path, f"holds {type(event).__name__}; expected a JSON object", line=number)
        events.append(event)
    return events


def _split_order(name: str) -> tuple[int, str]:
    return (SPLITS.index(name) if name in SPLITS else len(SPLITS), name)


def _read_all(folder: Path) -> dict[str, dict[str, Any]]:
    paths = sorted(folder.glob("*.json"), key=lambda path: _split_order(path.stem))
    return {path.stem: _read_json(path) for path in paths if not path.name.startswith(".")}


def _read_settings(folder: Path) -> tuple[str, dict[str, Any]]:
    path = folder / "settings.yaml"
    try:
        text = path.read_text(encoding="utf-8")
        settings = parse_yaml(text)
    except OSError:
        raise StructattnError(f"{folder} is not a run folder: it has no readable settings.yaml") from None
    except ValueError as error:
        raise DataError(path, f"not YAML: {error}") from None
    if not isinstance(settings, dict):
        raise DataError(path, f"holds {type(settings).__name__}; expected a mapping")
    return text, settings


def read_run(folder: Path, name: str | None = None) -> Run:
    """Read a run folder. Scores, records, events and run card may be missing, as in a run in progress.

    Raises:
        StructattnError: the folder is not a run folder.
        DataError: a file in it is damaged; the message names it.
    """
    text, settings = _read_settings(folder)
    card = folder / "run.json"
    run = Run(
        name=name or folder.resolve().name,
        folder=folder,
        settings=settings,
        settings_text=text,
        card=_read_json(card) if card.exists() else {},
        events=_read_events(folder / "events.jsonl"),
        scores=_read_all(folder / "scores"),
        records=_read_all(folder / "records"),
        analyses=_read_all(folder / "analyses"),
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

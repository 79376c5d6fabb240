"""The results of trials in one file, a line a trial: JSON with a digest of its own.

It replaces the run folders with their weights: it can be committed, and a sweep can continue on another machine.
"""

import copy
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import Field

from structattn.runs.checkpoint import Count
from structattn.runs.folder import RunFolder, changed_fields, differences
from structattn.settings.run import resolve_settings
from structattn.settings.training import Budget, Unit
from structattn.support.environment import source_commit
from structattn.support.errors import DataError
from structattn.support.files import create_folder, write_atomically
from structattn.support.json_files import Shape, check_shape, json_with_digest, parse_object, without_digest
from structattn.support.locks import exclusive_lock
from structattn.support.reading import content_of
from structattn.sweeps.data_preparation import digest_of_data, recorded_sources, require_same_sources
from structattn.sweeps.outcome import Outcome
from structattn.sweeps.trials import Trial, resolve_prepare

_KIND: Final = "trial"
_SECONDS_TO_WAIT: Final = 60.0  # for another sweep that writes the file; it takes some hundredths of a second
_logger = logging.getLogger(__name__)


class _Line(NamedTuple):
    """A line of the file: its number from 1, its text, and its content without the digest."""

    number: int
    text: str
    content: dict[str, Any]


class _BudgetShape(Shape):
    count: Count
    unit: Unit


class _TrialShape(Shape):
    """The fields of a line that are read. Settings that are missing have their defaults."""

    trial: str
    seed: int
    settings: dict[str, Any]
    prepare: dict[str, Any] | None
    sources: dict[str, str] = Field(default={})
    data_digest: str | None = None
    end: dict[str, Any] | None
    validations: list[dict[str, Any]]
    scores: dict[str, dict[str, Any]]
    analyses: dict[str, dict[str, float]]
    stopped: _BudgetShape | None = None


def store_outcome(path: Path, trial: Trial, run_dir: Path, outcome: Outcome, cpu_seconds: float | None = None) -> None:
    """Write the outcome of a trial as a line, with its settings, data, commit, version and hardware.

    The line of the same trial is replaced; scores and analyses of the same training are kept. Nothing is written if the
    trial is there and has been trained for longer. A crash leaves the file as it was; other sweeps may write to it.

    Args:
        path: the file; it and its folder are created if missing.
        trial: the trial; its digest names the line.
        run_dir: its run folder.
        outcome: its outcome.
        cpu_seconds: of the training; None: not known, or those of the line that is replaced if it is the same training.

    Raises:
        LockedError: other processes have kept the file locked for a minute.
        DataError: the file is damaged, or its line of the trial is of other settings or data.
    """
    create_folder(path.parent)
    with exclusive_lock(path.with_name(f".{path.name}.lock"), "writing", timeout=_SECONDS_TO_WAIT):
        stored = read_outcome(path, trial)
        if stored is not None and outcome.stopped is not None and stored.reaches(outcome.stopped):
            return
        lines = _read_lines(path)
        texts = {name: line.text for name, line in lines.items()}
        if stored is not None and stored.is_same_training(outcome):
            outcome = stored.joined(outcome)  # another sweep may have evaluated other splits
            if cpu_seconds is None:
                cpu_seconds = lines[trial.name].content.get("cpu_seconds")
        content = _content(trial, run_dir, outcome, cpu_seconds)
        texts[trial.name] = json_with_digest(_KIND, trial.name, content, indent=None)
        write_atomically(path, "".join(texts.values()))


def _content(trial: Trial, run_dir: Path, outcome: Outcome, cpu_seconds: float | None) -> dict[str, Any]:
    card = RunFolder(run_dir).read_card()
    return {
        "trial": trial.name,
        "cell": trial.cell,
        "restart": trial.restart,
        "seed": trial.settings.seed,
        "sampled": trial.sampled,
        "settings": trial.settings.model_dump(mode="json", exclude={"data", "seed"}),
        "prepare": None if trial.prepare is None else trial.prepare.model_dump(mode="json"),
        "sources": recorded_sources(trial),
        **({} if trial.prepare is None else {"data_digest": digest_of_data(trial.settings.data)}),
        "commit": source_commit(),
        **{name: card[name] for name in ("version", "environment", "hardware", "parameters")},
        **({} if cpu_seconds is None else {"cpu_seconds": cpu_seconds}),
        "end": outcome.end,
        **({} if outcome.stopped is None else {"stopped": asdict(outcome.stopped)}),
        "validations": outcome.validations,
        "scores": outcome.scores,
        "analyses": outcome.analyses,
    }


def read_outcome(path: Path | None, trial: Trial) -> Outcome | None:
    """Read the outcome of a trial from a file of trials; None if it has none, or there is no file.

    Raises:
        SettingsError: the results are of settings that this version does not know.
        DataError: the file is damaged, or the results are of other settings, because a default has changed, or of other
            data, because the source files have changed.
    """
    if path is None or (line := _read_lines(path).get(trial.name)) is None:
        return None
    content = line.content
    _require_same_settings(content, trial, path, line.number)
    require_same_sources(content.get("sources", {}), trial, f"{path}:{line.number}")
    stopped = None if content.get("stopped") is None else Budget(**content["stopped"])
    return Outcome(content["end"], content["validations"], content["scores"], content["analyses"], stopped)


def require_same_data(path: Path, trial: Trial) -> None:
    """Check that the results of a file are of the data of a trial, as far as their `prepare` is the same.

    Another version may draw other data from the same settings.

    Raises:
        DataError: the file is damaged, or has results of other data.
    """
    if trial.prepare is None:
        return  # compared by the header of their folder, with the source files
    digest, data = digest_of_data(trial.settings.data), trial.prepare.model_dump(mode="json")
    for line in _read_lines(path).values():
        if line.content["prepare"] == data and line.content.get("data_digest", digest) != digest:
            raise DataError(
                path,
                f"results of other data: the digest of their files was {line.content['data_digest']}, and that of "
                f"{trial.settings.data} is {digest}; without the lines of these data their trials are trained again",
                line.number,
            )


def _require_same_settings(stored: dict[str, Any], trial: Trial, path: Path, line: int) -> None:
    """Compare all settings; the name of a trial is a digest only of those that differ from their defaults.

    Raises:
        SettingsError: this version does not know a setting, or refuses its value.
        DataError: they differ.
    """
    given = {"data": str(trial.settings.data), "seed": stored["seed"], **copy.deepcopy(stored["settings"])}
    changes = changed_fields(resolve_settings(given, source=f"{path}:{line}"), trial.settings)
    if trial.prepare is not None and stored["prepare"] is not None:
        prepare = resolve_prepare(stored["prepare"], f"{path}:{line}: prepare")
        changes += differences({"prepare": prepare.model_dump()}, {"prepare": trial.prepare.model_dump()})
    if changes:
        reason = f"results of other settings: {'; '.join(changes)}; without this line the trial is trained again"
        raise DataError(path, reason, line)


def _read_lines(path: Path) -> Mapping[str, _Line]:
    """Return the lines of a file by the names of their trials; none if there is no file."""
    if not path.exists():
        return {}
    state = path.stat()
    return _parsed_lines(path, (state.st_ino, state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=4)  # a sweep asks for each of its trials
def _parsed_lines(path: Path, state: tuple[int, ...]) -> Mapping[str, _Line]:
    """Return the lines of a file in a state, which changes whenever the file is written."""
    *texts, rest = content_of(path).split(b"\n")
    if rest:
        _logger.warning("%s:%d: the line is incomplete and is left out", path, len(texts) + 1)
    lines: dict[str, _Line] = {}
    for number, text in enumerate(texts, start=1):
        content = parse_object(text, path, number)
        name = check_shape(_TrialShape, content, path, number)["trial"]
        if name in lines:
            raise DataError(path, f"a second line of the trial {name}, after line {lines[name].number}", number)
        lines[name] = _Line(number, f"{text.decode()}\n", without_digest(content, path, _KIND, name, number))
    _require_same_data_of_lines(path, lines.values())
    return lines


def _require_same_data_of_lines(path: Path, lines: Iterable[_Line]) -> None:
    """Check that lines with the same `prepare` are of the same data; earlier versions did not record their digest."""
    first: dict[str, _Line] = {}
    for line in lines:
        if (digest := line.content.get("data_digest")) is not None:
            other = first.setdefault(json.dumps(line.content["prepare"], sort_keys=True), line)
            if (expected := other.content["data_digest"]) != digest:
                reason = f"results of other data than line {other.number}: the digest is {digest}; expected {expected}"
                raise DataError(path, reason, line.number)

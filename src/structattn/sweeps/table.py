"""What came out of a sweep: for each cell the best trial by validation, and how much trials differ."""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from structattn.metrics.t_distribution import half_width
from structattn.runs.events import events_of, last_event
from structattn.settings.published import CONTRASTIVE, SCORES
from structattn.sweeps.trials import Cell, Trial


@dataclass(frozen=True)
class Result:
    """A trial that has ended.

    Args:
        trial: which.
        score: of its best validation, the smaller the better: the difference from the lower bound where that is known,
            the cross-entropy elsewhere, also where BLEU says which validation is best; nats per symbol.
        update: the update of that validation.
    """

    trial: Trial
    score: float
    update: int


@dataclass(frozen=True)
class Spread:
    """How the numbers of several trials lie.

    Args:
        count: how many there are.
        mean: of them.
        deviation: dividing by n - 1; None for one number.
        interval: half the width of the 95 % interval of the mean (Student's t); None for one number.
        least: of them.
        greatest: of them.
    """

    count: int
    mean: float
    deviation: float | None
    interval: float | None
    least: float
    greatest: float


@dataclass(frozen=True)
class Row:
    """What a sweep says of a cell.

    Args:
        cell: axis -> name.
        best: the least validation score: the rule of selection of DuSell & Chiang (2024).
        selected: the name of the trial that has it.
        validation: the scores of all trials of the cell that have ended.
        drawn: what was drawn for the selected trial.
        splits: split -> the selected trial's scores on it.
        over_trials: split -> the same of all trials that were scored on it.
    """

    cell: Cell
    best: float
    selected: str
    validation: Spread
    drawn: dict[str, float]
    splits: dict[str, dict[str, float]]
    over_trials: dict[str, dict[str, Spread]]


def spread_of(numbers: Sequence[float]) -> Spread:
    """The spread of one or more numbers."""
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
    interval = None if deviation is None else half_width(len(numbers)) * deviation / math.sqrt(len(numbers))
    return Spread(len(numbers), statistics.fmean(numbers), deviation, interval, min(numbers), max(numbers))


def result_of(trial: Trial, folder: Path) -> Result | None:
    """The result of a trial's run folder; None where it has not ended."""
    path = folder / "events.jsonl"
    end = last_event(path)
    if end is None or end["event"] != "end":
        return None
    best_update = end["best_update"]
    for event in reversed(events_of(path, ["validation"])):
        if event["update"] == best_update:
            difference = event["cross_entropy_difference"]
            return Result(trial, event["cross_entropy"] if difference is None else difference, best_update)
    return None


def selected_of(results: Sequence[Result]) -> list[Result]:
    """The best trial of each cell, in the order in which cells first occur."""
    best: dict[tuple[str, ...], Result] = {}
    for result in results:
        cell = tuple(result.trial.cell.values())
        if cell not in best or result.score < best[cell].score:
            best[cell] = result
    return list(best.values())


def rows_of(results: Sequence[Result], runs: Path) -> list[Row]:
    """One row for each cell that has a result."""
    return [
        _row(chosen, [r for r in results if r.trial.cell == chosen.trial.cell], runs) for chosen in selected_of(results)
    ]


def _row(chosen: Result, all_of_cell: Sequence[Result], runs: Path) -> Row:
    scores = {result.trial.name: _split_scores(runs / result.trial.name) for result in all_of_cell}
    return Row(
        cell=chosen.trial.cell,
        best=chosen.score,
        selected=chosen.trial.name,
        validation=spread_of([result.score for result in all_of_cell]),
        drawn=chosen.trial.drawn,
        splits=scores[chosen.trial.name],
        over_trials=_over_trials(list(scores.values())),
    )


def _split_scores(folder: Path) -> dict[str, dict[str, float]]:
    found = {}
    for path in sorted((folder / "scores").glob("*.json")):
        scores = json.loads(path.read_bytes())
        plain = scores | (scores.get("dependencies") or {})
        found[path.stem] = {name: plain[name] for name in SCORES if plain.get(name) is not None}
        for name, metric in (scores.get("translation") or {}).items():
            found[path.stem] |= {name: metric["value"], f"{name} ±": metric["interval"]}
    if accuracies := _on_contrastive_pairs(folder):
        found[CONTRASTIVE] = accuracies
    return found


def _on_contrastive_pairs(folder: Path) -> dict[str, float]:
    """By type of error, of all sets that the run was scored on."""
    sets = [json.loads(path.read_bytes())["types"] for path in sorted((folder / "analyses").glob("contrastive-*.json"))]
    return {kind: proportion["value"] for types in sets for kind, proportion in types.items()}


def _over_trials(scores: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, Spread]]:
    splits = dict.fromkeys(split for each in scores for split in each)
    found: dict[str, dict[str, Spread]] = {}
    for split in splits:
        of_split = [each[split] for each in scores if split in each]
        shared = [name for name in of_split[0] if all(name in score for score in of_split)]
        found[split] = {name: spread_of([score[name] for score in of_split]) for name in shared}
    return found


def signatures_of(runs: Iterable[Path]) -> list[str]:
    """How sacrebleu computed the scores of some run folders; empty where nothing was translated."""
    found = set()
    for folder in runs:
        for path in (folder / "scores").glob("*.json"):
            found |= {
                metric["signature"] for metric in (json.loads(path.read_bytes()).get("translation") or {}).values()
            }
    return sorted(found)


def rows_to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as plain values."""
    return [asdict(row) for row in rows]

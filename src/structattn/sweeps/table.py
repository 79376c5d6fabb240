"""The results table of a sweep: the best trial of each cell, and statistics over all its trials."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from structattn.metrics.t_distribution import critical_value
from structattn.settings.published import SCORES
from structattn.sweeps.outcome import Outcome, outcome_of_run, read_outcome
from structattn.sweeps.trials import Cell, Trial


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial that has ended.

    Args:
        trial: the trial.
        score: validation score of the best checkpoint, lower is better, in nats per symbol: the difference from the
            lower bound if that is known, else the cross-entropy (also if BLEU selects the checkpoint).
        update: the update of that validation.
        outcome: all its scores.
    """

    trial: Trial
    score: float
    update: int
    outcome: Outcome


@dataclass(frozen=True)
class SampleStatistics:
    """Statistics of a score over several trials.

    Args:
        count: the number of trials.
        mean: the mean.
        deviation: the sample standard deviation (n - 1); None for one number.
        interval: half the width of the 95 % confidence interval of the mean (Student's t); None for one number.
        min: the minimum.
        max: the maximum.
    """

    count: int
    mean: float
    deviation: float | None
    interval: float | None
    min: float
    max: float


@dataclass(frozen=True)
class TableRow:
    """The results of one cell of the grid.

    Args:
        cell: axis -> name of its value.
        best: the lowest validation score, by which a trial is selected (DuSell & Chiang 2024).
        selected: the name of the selected trial.
        validation: statistics of the validation score over the trials that have ended.
        sampled: the random hyperparameters of the selected trial.
        splits: split -> score name -> the score of the selected trial.
        over_trials: split -> score name -> statistics over the trials that were evaluated on the split.
    """

    cell: Cell
    best: float
    selected: str
    validation: SampleStatistics
    sampled: dict[str, float]
    splits: dict[str, dict[str, float]]
    over_trials: dict[str, dict[str, SampleStatistics]]


def sample_statistics(numbers: Sequence[float]) -> SampleStatistics:
    """Return the statistics of one or more numbers."""
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
    interval = None if deviation is None else critical_value(len(numbers)) * deviation / math.sqrt(len(numbers))
    return SampleStatistics(len(numbers), statistics.fmean(numbers), deviation, interval, min(numbers), max(numbers))


def read_trial_result(trial: Trial, run_dir: Path, trial_results: Path | None = None) -> TrialResult | None:
    """Read the result of a trial from its run folder or, without one, from its file; None if it has not ended.

    Args:
        trial: the trial.
        run_dir: its run folder.
        trial_results: the folder of the results of single trials, if any.
    """
    outcome = outcome_of_run(run_dir) or read_outcome(trial_results, trial)
    if outcome is None:
        return None
    best_update = outcome.end["best_update"]
    for event in reversed(outcome.validations):
        if event["update"] == best_update:
            difference = event["cross_entropy_difference"]
            score = event["cross_entropy"] if difference is None else difference
            return TrialResult(trial, score, best_update, outcome)
    return None


def select_best(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the best trial of each cell, in the order in which cells first occur."""
    best: dict[tuple[str, ...], TrialResult] = {}
    for result in results:
        cell = tuple(result.trial.cell.values())
        if cell not in best or result.score < best[cell].score:
            best[cell] = result
    return list(best.values())


def table_rows(results: Sequence[TrialResult]) -> list[TableRow]:
    """Return one row for each cell that has a result."""
    return [_row(chosen, [r for r in results if r.trial.cell == chosen.trial.cell]) for chosen in select_best(results)]


def _row(chosen: TrialResult, all_of_cell: Sequence[TrialResult]) -> TableRow:
    scores = {result.trial.name: _split_scores(result.outcome) for result in all_of_cell}
    return TableRow(
        cell=chosen.trial.cell,
        best=chosen.score,
        selected=chosen.trial.name,
        validation=sample_statistics([result.score for result in all_of_cell]),
        sampled=chosen.trial.sampled,
        splits=scores[chosen.trial.name],
        over_trials=_over_trials(list(scores.values())),
    )


def _split_scores(outcome: Outcome) -> dict[str, dict[str, float]]:
    found = {}
    for split, scores in outcome.scores.items():
        pseudo = {f"pseudo_{name}": value for name, value in (scores.get("pseudo") or {}).items()}
        plain = {**scores, **(scores.get("dependencies") or {}), **pseudo, **_transformation_scores(scores)}
        found[split] = {name: plain[name] for name in SCORES if plain.get(name) is not None}
        for name, metric in (scores.get("translation") or {}).items():
            found[split] |= {name: metric["value"], f"{name} ±": metric["interval"]}
    return found | {name: dict(scores) for name, scores in outcome.analyses.items()}


def _transformation_scores(scores: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the scores of a transformation over all pairs: proportions without their intervals."""
    found = (scores.get("transformation") or {}).get("all", {})
    return {name: each["value"] if isinstance(each, Mapping) else each for name, each in found.items()}


def _over_trials(scores: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, SampleStatistics]]:
    splits = dict.fromkeys(split for each in scores for split in each)
    found: dict[str, dict[str, SampleStatistics]] = {}
    for split in splits:
        of_split = [each[split] for each in scores if split in each]
        shared = [name for name in of_split[0] if all(name in score for score in of_split)]
        found[split] = {name: sample_statistics([score[name] for score in of_split]) for name in shared}
    return found


def sacrebleu_signatures(results: Iterable[TrialResult]) -> list[str]:
    """Return the sacrebleu signatures of translation scores; empty if there are none."""
    scores = (scores for result in results for scores in result.outcome.scores.values())
    return sorted({metric["signature"] for each in scores for metric in (each.get("translation") or {}).values()})


def rows_to_json(rows: Sequence[TableRow]) -> list[dict[str, Any]]:
    """Convert rows to values that JSON can hold."""
    return [asdict(row) for row in rows]

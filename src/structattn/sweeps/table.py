"""The results table of a sweep: the best trial of each cell, and statistics over all its trials."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from structattn.metrics.statistics import SampleStatistics, sample_statistics
from structattn.settings.published import SCORES
from structattn.sweeps.bracket import Bracket
from structattn.sweeps.outcome import Outcome
from structattn.sweeps.savings import Savings, savings
from structattn.sweeps.trial_result import TrialResult
from structattn.sweeps.trials import Cell


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
        savings: what successive halving gave to each trial, and what it saved; None without halving.
        trials: the number of trials, those included that failed or have not ended; 0: as many as have ended.
    """

    cell: Cell
    best: float
    selected: str
    validation: SampleStatistics
    sampled: dict[str, float]
    splits: dict[str, dict[str, float]]
    over_trials: dict[str, dict[str, SampleStatistics]]
    savings: Savings | None = None
    trials: int = 0

    @property
    def ended(self) -> str:
        """How many trials have ended, and of how many if some failed or are not done."""
        count = self.validation.count
        return f"{count} of {self.trials}" if self.savings is None and count < self.trials else str(count)


def select_best(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the best trial of each cell, in the order in which cells first occur."""
    best: dict[tuple[str, ...], TrialResult] = {}
    for result in results:
        cell = _names(result.trial.cell)
        if cell not in best or result.score < best[cell].score:
            best[cell] = result
    return list(best.values())


def table_rows(
    results: Sequence[TrialResult], brackets: Sequence[Bracket] = (), of_selected: Collection[str] = ()
) -> list[TableRow]:
    """Return one row for each cell that has a result, in the order of the brackets.

    Args:
        results: the results of the trials that have ended.
        brackets: the trials of each cell and the rungs that they have passed; without them, cells are in the order in
            which they first occur.
        of_selected: the splits for which the scores of the selected trial alone count: others have some if they were
            selected before.
    """
    bracket_of = {_names(bracket.trials[0].cell): bracket for bracket in brackets if bracket.trials}
    order = list(bracket_of)
    rows = []
    for chosen in sorted(select_best(results), key=lambda each: order.index(_names(each.trial.cell)) if order else 0):
        cell = chosen.trial.cell
        of_cell = [result for result in results if result.trial.cell == cell]
        rows.append(_row(chosen, of_cell, bracket_of.get(_names(cell)), of_selected))
    return rows


def _names(cell: Cell) -> tuple[str, ...]:
    return tuple(cell.values())


def _row(
    chosen: TrialResult, all_of_cell: Sequence[TrialResult], bracket: Bracket | None, of_selected: Collection[str]
) -> TableRow:
    scores = {
        result.trial.name: {
            split: of_split
            for split, of_split in _split_scores(result.outcome).items()
            if result == chosen or split not in of_selected
        }
        for result in all_of_cell
    }
    return TableRow(
        cell=chosen.trial.cell,
        best=chosen.score,
        selected=chosen.trial.name,
        validation=sample_statistics([result.score for result in all_of_cell]),
        sampled=chosen.trial.sampled,
        splits=scores[chosen.trial.name],
        over_trials=_over_trials(list(scores.values())),
        savings=savings(bracket, all_of_cell) if bracket is not None and bracket.rungs else None,
        trials=0 if bracket is None else len(bracket.trials),
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

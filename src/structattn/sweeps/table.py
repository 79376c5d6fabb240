"""The results table of a sweep: the best trial of each cell, and statistics over all its trials."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from structattn.metrics.statistics import SampleStatistics, sample_statistics
from structattn.settings.published import SCORES
from structattn.settings.training import Unit
from structattn.sweeps.outcome import Outcome, TrialResult
from structattn.sweeps.plan import Bracket
from structattn.sweeps.trials import Cell


@dataclass(frozen=True)
class RungStatistics:
    """The trials of a cell at a rung.

    Args:
        after: the epochs or updates after which they were compared.
        validation: statistics of their best validation scores until then.
    """

    after: int
    validation: SampleStatistics


@dataclass(frozen=True)
class TrialTraining:
    """The training of a trial.

    Args:
        trained: the epochs or updates that it was trained for.
        stopped: whether it was compared at a rung, and stopped there.
    """

    name: str
    restart: int
    trained: int
    stopped: bool
    score: float


@dataclass(frozen=True)
class Savings:
    """The training of all trials of a cell with successive halving, and without.

    Args:
        unit: what ``after`` and ``trained`` count.
        rungs: the rungs that the trials have passed.
        trials: the trials that have ended or were stopped, in the order of their index; not those that have failed or
            have not reached a rung.
        trained: the epochs or updates of all of them.
        without_halving: an estimate of what they would be if each had ended as those did that no rung has stopped.
    """

    unit: Unit
    rungs: tuple[RungStatistics, ...]
    trials: tuple[TrialTraining, ...]
    trained: int
    without_halving: float

    @property
    def share(self) -> str:
        """``trained`` in percent of ``without_halving``."""
        return _percent(self.trained, self.without_halving)


def describe_savings(cells: Sequence[Savings]) -> str:
    """Return a sentence on what the cells of a sweep cost with halving, and without."""
    trained, without = sum(cell.trained for cell in cells), sum(cell.without_halving for cell in cells)
    share = f"{_percent(trained, without)} of about {without:,.0f} without it"
    return (
        f"Successive halving: {trained:,} {cells[0].unit} of training, {share}, if each trial then ended as did those "
        "of its cell that no rung has stopped."
    )


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "—"


def savings(bracket: Bracket, results: Sequence[TrialResult]) -> Savings:
    """Return what halving gave to the trials of a cell, and what it saved.

    Args:
        bracket: the trials of the cell; they have passed a rung.
        results: the results of those that have ended, at least one.
    """
    unit = bracket.rungs[0].budget.unit
    ended = [
        TrialTraining(result.trial.name, result.trial.restart, result.outcome.trained(unit) or 0, False, result.score)
        for result in results
    ]
    stopped = [
        TrialTraining(trial.name, trial.restart, compared.trained, True, compared.score)
        for rung in bracket.rungs
        for trial in rung.stopped
        if (compared := rung.compared.get(trial.name)) is not None
    ]
    trials = sorted([*ended, *stopped], key=lambda trial: trial.restart)
    rungs = [
        RungStatistics(rung.budget.count, sample_statistics([each.score for each in rung.compared.values()]))
        for rung in bracket.rungs
    ]
    mean = fmean(trial.trained for trial in ended)
    return Savings(unit, tuple(rungs), tuple(trials), sum(trial.trained for trial in trials), mean * len(trials))


@dataclass(frozen=True)
class TableRow:
    """The results of one cell of the grid.

    Args:
        cell: axis -> name of its value.
        best: the validation score of the selected trial, the lowest (DuSell & Chiang 2024) unless BLEU selects.
        selected: the name of the selected trial.
        validation: statistics of the validation score over the trials that have ended.
        sampled: the random hyperparameters of the selected trial.
        splits: split -> score name -> the score of the selected trial.
        over_trials: split -> score name -> statistics over the trials that have the score.
        savings: what successive halving gave to each trial, and what it saved; None without halving.
        trials: the number of trials, those included that failed or have not ended; 0: as many as have ended.
        seeds: split, or ``validation`` -> the seeds behind the numbers of its statistics, in their order; of a score
            that not all trials with the split have, ``SPLIT.NAME`` -> its own. A split that is missing: not known.
        pending: the number of trials that are still to be trained or evaluated, without those that have failed.
        score: what the validation score is, with its unit.
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
    seeds: dict[str, tuple[int, ...]] = field(default_factory=dict)
    pending: int = 0
    score: str = "validation score"

    @property
    def ended(self) -> str:
        """How many trials have ended, and of how many if some failed or are not done."""
        count = self.validation.count
        return f"{count} of {self.trials}" if self.savings is None and count < self.trials else str(count)


def names_of_score(rows: Iterable[TableRow]) -> str:
    """Say what the validation scores of rows are, with their units."""
    return " or ".join(dict.fromkeys(row.score for row in rows))


def select_best(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Return the best trial of each cell, in the order in which cells first occur."""
    best: dict[tuple[str, ...], TrialResult] = {}
    for result in results:
        cell = _names(result.trial.cell)
        if cell not in best or result.rank < best[cell].rank:
            best[cell] = result
    return list(best.values())


def table_rows(
    results: Sequence[TrialResult],
    brackets: Sequence[Bracket] = (),
    of_selected: Collection[str] = (),
    pending: Collection[str] = (),
) -> list[TableRow]:
    """Return one row for each cell that has a result, in the order of the brackets.

    Args:
        results: the results of the trials that have ended.
        brackets: the trials of each cell and the rungs that they have passed; without them, cells are in the order in
            which they first occur.
        of_selected: splits on which only the selected trial is evaluated. A trial that an earlier, smaller sweep had
            selected has scores there, too; they are left out.
        pending: the names of the trials that have not ended.
    """
    bracket_of = {_names(bracket.trials[0].cell): bracket for bracket in brackets if bracket.trials}
    order = list(bracket_of)
    rows = []
    for chosen in sorted(select_best(results), key=lambda each: order.index(_names(each.trial.cell)) if order else 0):
        cell = chosen.trial.cell
        of_cell = [result for result in results if result.trial.cell == cell]
        rows.append(_row(chosen, of_cell, bracket_of.get(_names(cell)), of_selected, pending))
    return rows


def _names(cell: Cell) -> tuple[str, ...]:
    return tuple(cell.values())


def _row(
    chosen: TrialResult,
    all_of_cell: Sequence[TrialResult],
    bracket: Bracket | None,
    of_selected: Collection[str],
    pending: Collection[str],
) -> TableRow:
    scores = {
        result.trial.name: {
            split: of_split
            for split, of_split in _splits_of(result.outcome).items()
            if result == chosen or split not in of_selected
        }
        for result in all_of_cell
    }
    over_trials, seeds = _over_trials(
        [(result.trial.settings.seed, scores[result.trial.name]) for result in all_of_cell]
    )
    return TableRow(
        cell=chosen.trial.cell,
        best=chosen.score,
        selected=chosen.trial.name,
        validation=sample_statistics([result.score for result in all_of_cell]),
        sampled=chosen.trial.sampled,
        splits=scores[chosen.trial.name],
        over_trials=over_trials,
        savings=savings(bracket, all_of_cell) if bracket is not None and bracket.rungs else None,
        trials=0 if bracket is None else len(bracket.trials),
        seeds={"validation": tuple(result.trial.settings.seed for result in all_of_cell), **seeds},
        pending=0 if bracket is None else sum(trial.name in pending for trial in bracket.trials),
        score=chosen.name_of_score,
    )


def _splits_of(outcome: Outcome) -> dict[str, dict[str, float]]:
    """Return split -> score name -> score; the analyses are further splits."""
    return split_scores(outcome.scores) | {name: dict(scores) for name, scores in outcome.analyses.items()}


def split_scores(scores_of: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return split -> score name -> score, of what evaluation has written for each split."""
    by_split = {}
    for split, scores in scores_of.items():
        pseudo = {f"pseudo_{name}": value for name, value in (scores.get("pseudo") or {}).items()}
        plain = {**scores, **(scores.get("dependencies") or {}), **pseudo, **_transformation_scores(scores)}
        plain |= _recognition_scores(scores)
        by_split[split] = {name: plain[name] for name in SCORES if plain.get(name) is not None}
        for name, metric in (scores.get("translation") or {}).items():
            by_split[split] |= {name: metric["value"], f"{name} ±": metric["interval"]}
    return by_split


def _transformation_scores(scores: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the scores of a transformation over all pairs: proportions without their intervals."""
    of_all_pairs = (scores.get("transformation") or {}).get("all", {})
    return {name: each["value"] if isinstance(each, Mapping) else each for name, each in of_all_pairs.items()}


def _recognition_scores(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return scores of recognition within the lengths of training, whose band begins with 0, and beyond them."""
    recognition = scores.get("recognition") or {}
    bands = {name: each for name, each in recognition.get("groups", {}).get("all", {}).items() if name != "all"}
    members = recognition.get("members") or {}
    found: dict[str, float] = {}
    for place, is_within in (("within", True), ("beyond", False)):
        of_bands, of_members = (
            [each for name, each in of.items() if name.startswith("0") == is_within] for of in (bands, members)
        )
        if of_bands:
            trials, successes = (sum(each[name] for each in of_bands) for name in ("trials", "successes"))
            found[f"accuracy_{place}"] = successes / trials
        if of_members:
            weights = [each["num_tokens"] for each in of_members]
            found[f"members_{place}"] = fmean([each["cross_entropy"] for each in of_members], weights)
            differences = [each["cross_entropy_difference"] for each in of_members]
            if None not in differences:
                found[f"members_difference_{place}"] = fmean(differences, weights)
    return found


def _over_trials(
    trials: Sequence[tuple[int, dict[str, dict[str, float]]]],
) -> tuple[dict[str, dict[str, SampleStatistics]], dict[str, tuple[int, ...]]]:
    """Return split -> score name -> statistics, over the trials that have the score, and the seeds behind these.

    ``trials``: the seed and the scores of each.
    """
    statistics: dict[str, dict[str, SampleStatistics]] = {}
    seeds: dict[str, tuple[int, ...]] = {}
    for split in dict.fromkeys(split for _, scores in trials for split in scores):
        with_split = [(seed, scores[split]) for seed, scores in trials if split in scores]
        seeds[split] = tuple(seed for seed, _ in with_split)
        statistics[split] = {}
        for name in dict.fromkeys(name for _, scores in with_split for name in scores):
            with_name = [(seed, scores[name]) for seed, scores in with_split if name in scores]
            statistics[split][name] = sample_statistics([score for _, score in with_name])
            if len(with_name) < len(with_split):
                seeds[f"{split}.{name}"] = tuple(seed for seed, _ in with_name)
    return statistics, seeds


def sacrebleu_signatures(results: Iterable[TrialResult]) -> list[str]:
    """Return the sacrebleu signatures of translation scores; empty if there are none."""
    scores = (scores for result in results for scores in result.outcome.scores.values())
    return sorted({metric["signature"] for each in scores for metric in (each.get("translation") or {}).values()})

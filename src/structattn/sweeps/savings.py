"""What successive halving gave to each trial of a cell, and what it saved."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from structattn.metrics.statistics import SampleStatistics, sample_statistics
from structattn.settings.budget import Unit
from structattn.sweeps.bracket import Bracket, Rung
from structattn.sweeps.trial_result import TrialResult


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
        name: the name of the trial.
        restart: its index within its cell.
        trained: the epochs or updates that it was trained for.
        stopped: whether it was compared at a rung, and stopped there.
        score: its best validation score.
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
    ended = [_ended(unit, result) for result in results]
    trials = sorted([*ended, *_stopped(bracket)], key=lambda trial: trial.restart)
    rungs = [RungStatistics(rung.budget.count, _statistics(rung)) for rung in bracket.rungs]
    mean = fmean(trial.trained for trial in ended)
    return Savings(unit, tuple(rungs), tuple(trials), sum(trial.trained for trial in trials), mean * len(trials))


def _ended(unit: Unit, result: TrialResult) -> TrialTraining:
    assert result.outcome.end is not None, "the outcome of a result"
    trained = result.outcome.end[unit.removesuffix("s")]
    return TrialTraining(result.trial.name, result.trial.restart, trained, False, result.score)


def _statistics(rung: Rung) -> SampleStatistics:
    return sample_statistics([compared.score for compared in rung.compared.values()])


def _stopped(bracket: Bracket) -> list[TrialTraining]:
    return [
        TrialTraining(trial.name, trial.restart, compared.trained, True, compared.score)
        for rung in bracket.rungs
        for trial in rung.stopped
        if (compared := rung.compared.get(trial.name)) is not None
    ]

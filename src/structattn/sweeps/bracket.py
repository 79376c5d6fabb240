"""How far the trials of a cell have come, with successive halving or proposed values, and which to train next."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from structattn.settings.budget import Budget
from structattn.settings.sampler import TpeSampler
from structattn.settings.sweep import SweepSettings
from structattn.sweeps.folder import SweepFolder
from structattn.sweeps.proposals import proposed_trials
from structattn.sweeps.trial_result import best_validation, validation_score
from structattn.sweeps.trials import Cell, Trial, trials_of

Waits = Callable[[Trial, Budget | None], bool]
"""Whether a trial has still to be trained for a budget, or to its end (None)."""


@dataclass(frozen=True)
class Compared:
    """A trial at a rung.

    Args:
        score: its best validation score until then.
        trained: the epochs or updates that it was trained for; fewer than those of the rung if it has ended before.
    """

    score: float
    trained: int


@dataclass(frozen=True)
class Rung:
    """A rung that the trials of a cell have passed.

    Args:
        budget: for which they were trained.
        compared: name of each trial that was compared -> the trial at the rung, the best first.
        stopped: the trials that did not go on, those that were not compared included.
    """

    budget: Budget
    compared: dict[str, Compared]
    stopped: tuple[Trial, ...]


@dataclass(frozen=True)
class Bracket:
    """The trials of a cell and the rungs that they have passed.

    Args:
        trials: all trials of the cell whose values are known.
        rungs: the passed rungs.
        going_on: the trials that no rung has stopped.
        pending: those of them that are to be trained next.
        budget: for how long; None: to their end.
    """

    trials: Sequence[Trial]
    rungs: Sequence[Rung]
    going_on: Sequence[Trial]
    pending: Sequence[Trial]
    budget: Budget | None


def make_bracket(sweep: SweepSettings, folder: SweepFolder, cell: Cell, waits: Waits) -> Bracket:
    """Read how far the trials of a cell have come.

    The comparison at a rung is a function of the validations until then: it is the same whenever it is made, and
    whatever trials have been trained for longer. A trial that is not there and does not wait, as it failed, is worse
    than all others.

    Args:
        sweep: the settings of the sweep.
        folder: its folder.
        cell: the cell.
        waits: whether a trial has to be trained before a comparison.
    """
    if isinstance(sweep.sampler, TpeSampler):
        trials = proposed_trials(sweep, sweep.sampler, folder, cell, lambda trial: waits(trial, None))
        return Bracket(trials, (), trials, [trial for trial in trials if waits(trial, None)], None)
    trials = trials_of(sweep, folder.path, cell)
    if not trials:
        return Bracket((), (), (), (), None)
    going_on = trials
    rungs: list[Rung] = []
    for budget, survivors in _comparisons(sweep, len(trials)):
        if pending := [trial for trial in going_on if waits(trial, budget)]:
            return Bracket(trials, rungs, going_on, pending, budget)
        compared = _compare(folder, going_on, budget)
        kept = list(compared)[:survivors]
        rungs.append(Rung(budget, compared, tuple(trial for trial in going_on if trial.name not in kept)))
        going_on = [trial for trial in going_on if trial.name in kept]
    return Bracket(trials, rungs, going_on, [trial for trial in going_on if waits(trial, None)], None)


def _comparisons(sweep: SweepSettings, count: int) -> Iterator[tuple[Budget, int]]:
    """Yield each rung with the number of trials that go on, of ``count`` before the first."""
    if sweep.halving is not None:
        for budget in sweep.halving.budgets:
            count = sweep.halving.survivors(count)
            yield budget, count


def _compare(folder: SweepFolder, trials: Sequence[Trial], budget: Budget) -> dict[str, Compared]:
    """Return the trials at a rung, the best first by their own criterion; ties go to the earlier trial."""
    found = []
    for trial in trials:
        outcome = folder.outcome_after(trial, budget)
        best = None if outcome is None else best_validation(outcome.validations_within(budget))
        if outcome is not None and best is not None:
            by_bleu, score = best.get("bleu"), validation_score(best)
            compared = Compared(score, outcome.trained_within(budget))
            found.append((score if by_bleu is None else -by_bleu, trial.name, compared))
    found.sort(key=lambda each: each[0])
    return {name: compared for _, name, compared in found}

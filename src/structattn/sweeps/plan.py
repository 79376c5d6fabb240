"""The jobs that train the trials of a sweep: all at once, rung by rung, or as their values are proposed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from structattn.settings.budget import Budget
from structattn.settings.sampler import TpeSampler
from structattn.settings.sweep import SweepSettings
from structattn.sweeps.outcome import best_validation, validation_score
from structattn.sweeps.proposals import proposed_trials
from structattn.sweeps.scheduler import SweepStatus
from structattn.sweeps.trials import Cell, Trial, cells_of, trials_of
from structattn.sweeps.worker import Job, SweepFolder, flush, is_done

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
    ranked = []
    for trial in trials:
        outcome = folder.outcome_after(trial, budget)
        best = None if outcome is None else best_validation(outcome.validations_within(budget))
        if outcome is not None and best is not None:
            by_bleu, score = best.get("bleu"), validation_score(best)
            compared = Compared(score, outcome.trained_within(budget))
            ranked.append((score if by_bleu is None else -by_bleu, trial.name, compared))
    ranked.sort(key=lambda each: each[0])
    return {name: compared for _, name, compared in ranked}


@dataclass(frozen=True)
class Plan:
    """The jobs of a sweep, which follow from its settings and from what its folder holds.

    Args:
        sweep: the settings.
        folder: the folder.
    """

    sweep: SweepSettings
    folder: SweepFolder

    def first_jobs(self) -> list[Job]:
        """Return the jobs to begin with; flush the jobs that are done.

        With halving cell by cell, since results are known when a cell has passed all rungs; otherwise those of the
        first trial of each cell first.
        """
        jobs = [job for cell in cells_of(self.sweep) for job in self._pending(cell, is_unfinished)]
        return jobs if self.sweep.halving else sorted(jobs, key=lambda job: job.trial.restart)

    def next_jobs(self, status: SweepStatus, ended: Job) -> list[Job]:
        """Return the jobs that can start when a job has ended: those that follow from the scores of its cell."""
        cell = ended.trial.cell
        if not self.sweep.is_adaptive or any(job.trial.cell == cell for job in status.unfinished):
            return []
        done = [(job.run_dir, job.pause_after) for job in status.done]
        failed = [job.run_dir for job, _ in status.failed]

        def waits(job: Job) -> bool:
            return (job.run_dir, job.pause_after) not in done and job.run_dir not in failed and not is_done(job)

        return self._pending(cell, waits)

    def trials(self) -> list[Trial]:
        """Return the trials whose values are known: the first of every cell, then the second of every cell, etc."""

        def waits(trial: Trial, budget: Budget | None) -> bool:
            return not is_done(self._job(trial, budget))

        brackets = [make_bracket(self.sweep, self.folder, cell, waits) for cell in cells_of(self.sweep)]
        return sorted((trial for each in brackets for trial in each.trials), key=lambda trial: trial.restart)

    def brackets(self) -> list[Bracket]:
        """Return how far the cells have come; a trial that has not reached a rung counts as failed there."""
        cells = cells_of(self.sweep)
        return [make_bracket(self.sweep, self.folder, cell, lambda trial, budget: False) for cell in cells]

    def _pending(self, cell: Cell, waits: Callable[[Job], bool]) -> list[Job]:
        bracket = make_bracket(self.sweep, self.folder, cell, lambda *trial: waits(self._job(*trial)))
        return [self._job(trial, bracket.budget) for trial in bracket.pending]

    def _job(self, trial: Trial, budget: Budget | None) -> Job:
        """Return the job that trains a trial; at its end, it is evaluated."""
        splits = tuple(split for split, which in self.sweep.evaluate.items() if which == "all")
        return self.folder.job(trial, () if budget else splits, budget)


def is_unfinished(job: Job) -> bool:
    """Return whether a job is not done; flush it if it is."""
    if is_done(job):
        flush(job)
        return False
    return True


def going_on(brackets: Sequence[Bracket]) -> list[Trial]:
    """Return the trials that no rung has stopped: the first of every cell, then the second of every cell, etc."""
    trials = [trial for bracket in brackets for trial in bracket.going_on]
    return sorted(trials, key=lambda trial: trial.restart)

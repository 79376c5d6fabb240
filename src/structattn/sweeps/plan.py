"""The jobs that train the trials of a sweep: all at once, rung by rung, or as their values are proposed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from structattn.settings.budget import Budget
from structattn.settings.sweep import SweepSettings
from structattn.sweeps.bracket import Bracket, make_bracket
from structattn.sweeps.folder import SweepFolder, flush, is_done
from structattn.sweeps.scheduler import SweepStatus
from structattn.sweeps.trials import Cell, Trial, cells_of
from structattn.sweeps.worker import Job


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

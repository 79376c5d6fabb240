"""The jobs that train the trials of a sweep: all at once, rung by rung, or as an optimizer proposes their values.

The trials of a cell come in groups: first those that are drawn at random, then ``parallel`` at a time. The values of a
group are a function of the settings of the sweep and of the scores of all earlier groups, so they do not depend on the
order in which trials end, on the engine, or on interruptions. They do depend on the version of Optuna, so what was
proposed is read from ``trials.json``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from structattn.settings.distributions import Cycle, Interval, LogUniform, Uniform
from structattn.settings.sweep import SweepSettings, TpeSampler
from structattn.settings.training import Budget
from structattn.support.imports import require_modules
from structattn.support.seeds import derived_seed
from structattn.sweeps.outcome import best_validation, validation_rank, validation_score
from structattn.sweeps.scheduler import SweepStatus
from structattn.sweeps.trials import Cell, Trial, cells_of, drawn_values, make_trial, names_of, trials_of
from structattn.sweeps.worker import Job, SweepFolder, flush, is_done

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def proposed_trials(
    sweep: SweepSettings, sampler: TpeSampler, folder: SweepFolder, cell: Cell, waits: Callable[[Trial], bool]
) -> list[Trial]:
    """Return the trials of a cell whose values are known.

    A trial that has no result and does not wait to be trained, as it failed, tells the optimizer nothing.

    Raises:
        UsageError: Optuna is needed and not installed.
        SettingsError: the settings of a trial are invalid; the message names the cell.
        DataError: the list of trials is damaged.
    """
    count = sweep.restarts_of(cell)
    drawn = range(min(count, sampler.startup))
    trials = [make_trial(sweep, folder.path, cell, restart, drawn_values(sweep, cell, restart)) for restart in drawn]
    trials += _recorded(sweep, folder, trials, count)
    if count > len(trials):
        require_modules("optuna", "optuna")  # before the first trial rather than hours later
    group = trials
    while len(trials) < count and not any(map(waits, group)):
        first = len(trials)
        values = _propose(sweep, folder, trials, min(count - first, sampler.parallel))
        group = [make_trial(sweep, folder.path, cell, first + i, each) for i, each in enumerate(values)]
        trials = [*trials, *group]
    return trials


def _recorded(sweep: SweepSettings, folder: SweepFolder, drawn: Sequence[Trial], count: int) -> list[Trial]:
    """Return the trials that were proposed to follow the drawn ones of a cell, if those are the same as then."""
    listed = folder.listed(drawn[0].cell)[:count] if drawn else []
    if [trial.name for trial in drawn] != [name for name, _ in listed[: len(drawn)]]:
        return []
    recorded: list[Trial] = []
    for name, values in listed[len(drawn) :]:
        trial = make_trial(sweep, folder.path, drawn[0].cell, len(drawn) + len(recorded), values)
        if trial.name != name:
            break
        recorded.append(trial)
    return recorded


def _propose(sweep: SweepSettings, folder: SweepFolder, earlier: Sequence[Trial], count: int) -> list[dict[str, Any]]:
    """Return the values of ``count`` trials that follow those of a cell."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    intervals = {path: given for path, given in sweep.random.items() if not isinstance(given, Cycle)}
    distributions = {path: _distribution(given) for path, given in intervals.items()}
    seed = derived_seed(sweep.seed, "tpe", *names_of(earlier[0].cell), len(earlier)) % 2**32
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=1, constant_liar=count > 1)
    study = optuna.create_study(sampler=sampler)
    for trial in earlier:
        if (result := folder.result(trial)) is not None:
            values = {path: _within(intervals[path], value) for path, value in trial.sampled.items()}
            study.add_trial(optuna.trial.create_trial(params=values, distributions=distributions, value=result.rank))
    return [study.ask(distributions).params for _ in range(count)]


def _within(given: Interval, value: float) -> float:
    """Return a drawn value without what rounding put it outside of its interval by."""
    return min(max(value, given.low), given.high)


def _distribution(given: Interval) -> "BaseDistribution":
    from optuna.distributions import FloatDistribution, IntDistribution

    if isinstance(given, LogUniform | Uniform):
        return FloatDistribution(given.low, given.high, log=isinstance(given, LogUniform))
    return IntDistribution(given.low, given.high)


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
    whatever trials have been trained for longer. A trial that is not there and does not wait to be trained, as it
    failed, is worse than all others.
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
            trained = min(budget.count, outcome.trained(budget.unit) or budget.count)
            ranked.append((validation_rank(best), trial.name, Compared(validation_score(best), trained)))
    ranked.sort(key=lambda each: each[0])
    return {name: compared for _, name, compared in ranked}


@dataclass(frozen=True)
class Plan:
    """The jobs of a sweep, which follow from its settings and from what its folder holds."""

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
        return self.folder.job(trial, () if budget else splits, budget, tuple(self.sweep.evaluate))


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

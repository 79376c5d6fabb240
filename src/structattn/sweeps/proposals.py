"""The trials of a sweep whose values an optimizer proposes from the scores of earlier trials.

The trials of a cell come in groups: first those that are drawn at random, then ``parallel`` at a time. The values of a
group are a function of the settings of the sweep and of the scores of all earlier groups, so they do not depend on the
order in which trials end, on the engine, or on interruptions (with the same version of Optuna).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from structattn.settings.sampler import TpeSampler
from structattn.settings.sweep import Distribution, LogUniform, SweepSettings, Uniform
from structattn.support.imports import require_modules
from structattn.support.seeds import derived_seed
from structattn.sweeps.trials import Cell, Trial, drawn_values, make_trial, names_of
from structattn.sweeps.worker import SweepFolder

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def proposed_trials(
    sweep: SweepSettings, sampler: TpeSampler, folder: SweepFolder, cell: Cell, waits: Callable[[Trial], bool]
) -> list[Trial]:
    """Return the trials of a cell whose values are known.

    A trial that has no result and does not wait, as it failed, tells the optimizer nothing.

    Args:
        sweep: the settings of the sweep.
        sampler: those of its sampler.
        folder: its folder.
        cell: the cell.
        waits: whether a trial has still to be trained.

    Raises:
        UsageError: Optuna is needed and not installed.
        SettingsError: the settings of a trial are invalid; the message names the cell.
    """
    count = sweep.restarts_of(cell)
    if count > sampler.startup:
        require_modules("optuna", "optuna")  # before the first trial rather than hours later
    trials: list[Trial] = []
    group: list[Trial] = []
    while len(trials) < count and not any(map(waits, group)):
        first = len(trials)
        if first == 0:
            values = [drawn_values(sweep, cell, restart) for restart in range(min(count, sampler.startup))]
        else:
            values = _propose(sweep, folder, trials, min(count - first, sampler.parallel))
        group = [make_trial(sweep, folder.path, cell, first + i, each) for i, each in enumerate(values)]
        trials += group
    return trials


def _propose(sweep: SweepSettings, folder: SweepFolder, earlier: Sequence[Trial], count: int) -> list[dict[str, Any]]:
    """Return the values of ``count`` trials that follow those of a cell."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {path: _distribution(given) for path, given in sweep.random.items()}
    seed = derived_seed(sweep.seed, "tpe", *names_of(earlier[0].cell), len(earlier)) % 2**32
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=1, constant_liar=count > 1)
    study = optuna.create_study(sampler=sampler)
    for trial in earlier:
        if (result := folder.result(trial)) is not None:
            values = {path: _within(sweep.random[path], value) for path, value in trial.sampled.items()}
            study.add_trial(optuna.trial.create_trial(params=values, distributions=distributions, value=result.score))
    return [study.ask(distributions).params for _ in range(count)]


def _within(given: Distribution, value: float) -> float:
    """Return a drawn value without what rounding put it outside of its interval by."""
    return min(max(value, given.low), given.high)


def _distribution(given: Distribution) -> "BaseDistribution":
    from optuna.distributions import FloatDistribution, IntDistribution

    if isinstance(given, LogUniform | Uniform):
        return FloatDistribution(given.low, given.high, log=isinstance(given, LogUniform))
    return IntDistribution(given.low, given.high)

"""Runs that were trained elsewhere and stand beside the trials of a sweep: verified, and scored by this version.

A run can be added if it differs from a trial of the sweep in the model alone: its other settings are those of the
trial, its data are the same to the byte, and it has about as many parameters as the models of the sweep.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from structattn.loading.runs import open_run
from structattn.runs.folder import differences, existing_run
from structattn.settings.base import leaves
from structattn.settings.distributions import Cycle
from structattn.settings.run import RunSettings
from structattn.settings.sweep import SweepSettings
from structattn.support import __version__
from structattn.support.devices import count_parameters
from structattn.support.environment import name_of, source_commit
from structattn.support.errors import SettingsError, UsageError
from structattn.support.files import create_folder, write_atomically
from structattn.support.json_files import Shape, check_shape, read_json, write_json
from structattn.sweeps.table import split_scores
from structattn.sweeps.trials import Cell, Trial, make_trials
from structattn.sweeps.worker import SweepFolder, prepare_trial_data
from structattn.tasks.registry import kind_of
from structattn.tasks.scores import scores_to_json
from structattn.tasks.sizes import num_parameters
from structattn.text.folders.prepared import open_prepared

MARGIN: Final = 0.1
"""How far the number of parameters may lie outside of those of the sweep's models, as a share."""
_KIND: Final = "added run"
_FREE: Final = ("model", "data", "seed", "plugins")
_OF_THE_MACHINE: Final = ("training.num_threads", "training.checkpoint_every", "training.keep_checkpoints")
_SHOWN: Final = 4  # differences in a message
_BATCH_TOKENS: Final = 8192


@dataclass(frozen=True)
class AddedRun:
    """A run that was trained elsewhere.

    Args:
        cell: axis -> the value that the run has; its name, for axes that choose the model.
        splits: split -> score name -> score, as in ``TableRow``.
    """

    name: str
    cell: Cell
    seed: int
    parameters: int
    splits: dict[str, dict[str, float]]


class _AddedShape(Shape):
    name: str
    cell: dict[str, str]
    seed: int
    parameters: int
    scores: dict[str, dict[str, Any]]


def add_run(sweep: SweepSettings, path: str | PathLike[str], run_dir: str | PathLike[str]) -> AddedRun:
    """Verify a run, score it on the splits of a sweep, and write the scores to the folder of the sweep.

    The run is only read. A run of the same name replaces the one that was added before. Cost: the data of one trial,
    the models of the sweep without weights, and an evaluation.

    Raises:
        UsageError: the run has not ended, or the sweep evaluates no split.
        SettingsError: no trial has its settings, or it has too many or too few parameters; the message says which.
        CheckpointError: the data of the trial are others than those of the run.
        StructattnError: run, checkpoint or data are missing or damaged, or the folder is not that of a sweep.
    """
    run_dir = Path(run_dir)
    folder, run = SweepFolder(Path(path).absolute()), existing_run(run_dir)
    folder.require_sweep_or_nothing()
    if run.end_event() is None:
        raise UsageError(f"{run_dir}: the run has not ended")
    if not sweep.evaluate:
        raise UsageError(f"{path}: the sweep evaluates no split; expected `evaluate` in its settings")
    settings, trials = run.read_settings(), make_trials(sweep, folder.path)
    trial = _trial_beside(sweep, trials, settings, run_dir)
    if not folder.settings.exists():  # so that the folder is that of a sweep, which may begin later
        create_folder(folder.path)
        write_atomically(folder.settings, sweep.to_yaml())
    prepare_trial_data(trial)
    opened = open_run(run_dir, data=trial.settings.data)  # refuses other data than those of the training
    parameters = count_parameters(opened.model)
    _require_size(parameters, [each for each in trials if each.settings.data == trial.settings.data], run_dir)
    scores = {split: scores_to_json(kind_of(opened).evaluate(opened, split, _BATCH_TOKENS)) for split in sweep.evaluate}
    models = [axis for axis, values in sweep.grid.items() if _chooses_model(values.values())]
    name = name_of(run_dir)
    content = {
        "name": name,
        "cell": {axis: name if axis in models else value for axis, value in trial.cell.items()},
        "seed": settings.seed,
        "parameters": parameters,
        "settings": settings.model_dump(mode="json", exclude={"data"}),
        "data_digest": opened.prepared.digest,
        "trained_with": {key: run.read_card()[key] for key in ("version", "environment", "hardware")},
        "version": __version__,
        "commit": source_commit(),
        "scores": scores,
    }
    create_folder(folder.added)
    write_json(folder.added / f"{name}.json", _KIND, content)
    return _added(content)


def read_added(path: Path) -> list[AddedRun]:
    """Read the runs that were added to the sweep in a folder, by name.

    Raises:
        DataError: a file is damaged.
    """
    files = sorted(SweepFolder(path).added.glob("*.json"))
    return [_added(check_shape(_AddedShape, read_json(file, _KIND), file)) for file in files]


def _added(content: dict[str, Any]) -> AddedRun:
    splits = split_scores(content["scores"])
    return AddedRun(content["name"], content["cell"], content["seed"], content["parameters"], splits)


def _chooses_model(values: Collection[Mapping[str, Any]]) -> bool:
    """Return whether the values of an axis are other models, for data and a task that are the same."""
    changed = {path.partition(".")[0] for changes in values for path in changes}
    return "model" in changed and not changed & {"data", "prepare", "task"}


def _trial_beside(sweep: SweepSettings, trials: Sequence[Trial], settings: RunSettings, run_dir: Path) -> Trial:
    """Return the first trial that differs from the settings of a run in the model and the sampled values alone.

    Raises:
        SettingsError: there is none.
    """
    extra = open_prepared(settings.data).header.extra
    found: list[str] | None = None
    for trial in trials:
        stated = {} if trial.prepare is None else trial.prepare.model_dump()
        other = [
            f"{name} of the data is {extra[name]!r}, {stated[name]!r} in the sweep"
            for name in ("language", "protocol", "seed")
            if name in extra and name in stated and extra[name] != stated[name]
        ]
        if settings.seed != trial.settings.seed:
            other.append(f"seed is {settings.seed}, {trial.settings.seed} in the sweep")
        other += _changes(sweep, trial.settings, settings)
        if not other:
            return trial
        found = other if found is None or len(other) < len(found) else found
    reasons = "; ".join((found or [])[:_SHOWN])
    raise SettingsError(f"{run_dir}: fits no trial of the sweep; the nearest one differs: {reasons}")


def _changes(sweep: SweepSettings, expected: RunSettings, given: RunSettings) -> list[str]:
    """Return how settings differ from those of a trial, but for the model and values that the sweep may sample."""
    trees = [each.model_dump(mode="json", exclude=set(_FREE)) for each in (expected, given)]
    changes = differences(*trees, may_differ=(*sweep.random, *_OF_THE_MACHINE))
    values = dict(leaves(given.model_dump(mode="json")))
    for path, choice in sweep.random.items():
        value = values.get(path)
        if isinstance(choice, Cycle):
            fits = value in choice.values
        else:
            fits = isinstance(value, int | float) and choice.low <= value <= choice.high
        if not fits and path.partition(".")[0] != "model":
            changes.append(f"{path} is {value!r}, which the sweep does not sample")
    return changes


def _require_size(parameters: int, trials: Sequence[Trial], run_dir: Path) -> None:
    """Check that a run has about as many parameters as the models of a sweep.

    Raises:
        SettingsError: it has more or fewer.
    """
    models = {trial.settings.model: trial.settings for trial in trials}
    prepared = open_prepared(trials[0].settings.data)
    sizes = [num_parameters(each, prepared, each.training.recognition) for each in models.values()]
    low, high = round(min(sizes) * (1 - MARGIN)), round(max(sizes) * (1 + MARGIN))
    if not low <= parameters <= high:
        raise SettingsError(f"{run_dir}: has {parameters:,} parameters; expected {low:,} to {high:,}")

"""How a run starts: anew, from the weights of another run, resumed, or with other limits; and who observes it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from structattn.models.mode import evaluating
from structattn.runs.folder import RunFolder, check_same_settings
from structattn.settings.budget import Budget
from structattn.settings.limits import with_limits
from structattn.settings.run import RunSettings
from structattn.support.errors import CheckpointError, StructattnError, UsageError
from structattn.text.folders.prepared import PreparedFolder
from structattn.training.learner import Learner, generator_states, set_generator_states


@dataclass(frozen=True)
class ValidatedModel:
    """The model of a run before its first update or at a validation.

    Args:
        run_dir: the run folder.
        settings: of the run.
        prepared: its data.
        model: in evaluation mode; it must not be changed.
        update: the number of updates so far.
    """

    run_dir: Path
    settings: RunSettings
    prepared: PreparedFolder
    model: torch.nn.Module
    update: int


OnValidation = Callable[[ValidatedModel], object]


def observe(function: OnValidation, learner: Learner, validated: ValidatedModel) -> None:
    """Call a function with the model in evaluation mode; afterwards its mode and all generators are as before."""
    generators = generator_states(learner.device)
    with evaluating(validated.model), torch.no_grad():
        function(validated)
    set_generator_states(generators, learner.device)


Resume = bool | Literal["auto"]


@dataclass(frozen=True)
class Start:
    """The arguments of ``train`` of the same names."""

    resume: Resume
    limits: Mapping[str, Any]
    initial_run: Path | None = None
    pause_after: Budget | None = None
    on_validation: OnValidation | None = None


def settings_of_start(settings: RunSettings | None, run_dir: RunFolder, start: Start) -> RunSettings:
    """Return the settings of a start: those given or, to resume, those of the run; with the new limits.

    Raises:
        UsageError: there are limits, or no settings, but nothing is to be resumed; or there is an initial run, but a
            run is to be resumed.
        StructattnError: no settings are given, and there is no run.
        SettingsError: a limit is unknown or invalid.
    """
    if not start.resume and (settings is None or start.limits):
        raise UsageError(f"{run_dir.path}: a new run takes its limits from its settings; only resume can change them")
    if start.resume is True and start.initial_run is not None:
        raise UsageError(f"{start.initial_run}: only a new run starts from the weights of another")
    if settings is None and not run_dir.has_run():
        raise StructattnError(f"{run_dir.path}: contains no run to resume")
    settings = settings or run_dir.read_settings()
    return with_limits(settings, start.limits) if start.limits else settings


def can_resume(run_dir: RunFolder, settings: RunSettings, start: Start) -> bool:
    """Return whether to resume a run.

    Raises:
        StructattnError: there is a run, but ``resume`` asks for a new one, or the other way round.
        CheckpointError: the settings are not those of the run, or it did not start from the weights of another.
    """
    if not run_dir.has_run():
        if start.resume is True:
            raise StructattnError(f"{run_dir.path}: contains no run to resume")
        return False
    if not start.resume:
        raise StructattnError(f"{run_dir.path}: already contains a run; resume it or choose another folder")
    check_same_settings(run_dir, settings, start.limits)
    if start.initial_run is not None and "initial_weights" not in run_dir.read_card():
        raise CheckpointError(f"{run_dir.path}: this run did not start from the weights of another")
    return True

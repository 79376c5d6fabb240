"""The model of a run at a validation, for functions that observe training."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from structattn.models.mode import evaluating
from structattn.settings.run import RunSettings
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

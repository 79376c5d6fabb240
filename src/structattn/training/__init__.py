"""Training of any task, resumable at any moment with byte-identical results.

- ``train``: train a run to its end, or resume it; returns a ``TrainingSummary``.
- ``ValidatedModel``: what ``train`` passes to a function that observes the run at its validations.
- ``Learner``, ``build_learner``: a model with its optimizer, device and precision.
- ``Update``, ``training_step``: one update of the parameters.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.runs.metadata import TrainingSummary
    from structattn.training.learner import Learner, build_learner
    from structattn.training.loop import Update, training_step
    from structattn.training.run_training import train
    from structattn.training.start import ValidatedModel

__all__ = ["Learner", "TrainingSummary", "Update", "ValidatedModel", "build_learner", "train", "training_step"]

__getattr__, __dir__ = lazy_exports(__name__)

"""What the functions of a trained run take: the protocol of ``TrainedRun`` without its methods."""

from pathlib import Path
from typing import Protocol

from structattn.models import EncoderDecoder, LanguageModel, MaskedLanguageModel, RecurrentLanguageModel
from structattn.settings.run import RunSettings
from structattn.support.errors import UsageError
from structattn.text.folders.prepared import PreparedFolder

TrainedModel = EncoderDecoder | LanguageModel | MaskedLanguageModel | RecurrentLanguageModel


class LoadedRun(Protocol):
    """A trained model with the settings and data of its run; see ``TrainedRun``."""

    @property
    def run_dir(self) -> Path:
        """The run folder."""

    @property
    def settings(self) -> RunSettings:
        """The resolved settings."""

    @property
    def prepared(self) -> PreparedFolder:
        """The data that the model was trained on."""

    @property
    def model(self) -> TrainedModel:
        """In evaluation mode."""

    @property
    def update(self) -> int:
        """The update after which the weights were saved; for averaged weights, the last one."""

    @property
    def accelerated(self) -> TrainedModel:
        """The same, or its fast form; see ``structattn.accelerate``."""


def cannot(run: LoadedRun, action: str, expected: str) -> UsageError:
    """Return the error of a run whose kind does not support an action."""
    kind, task = run.settings.model.kind, run.settings.task
    return UsageError(f"{run.run_dir}: a model of kind {kind!r} and task {task!r} cannot {action}; expected {expected}")


def translation_model(run: LoadedRun) -> EncoderDecoder:
    """Return the model of a translation run, accelerated.

    Raises:
        UsageError: the model cannot translate.
    """
    if not isinstance(run.model, EncoderDecoder):
        raise cannot(run, "translate", "a translation model")
    found = run.accelerated
    assert isinstance(found, EncoderDecoder)
    return found

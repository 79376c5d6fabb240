"""Trained runs: settings, data, and the model with the weights of a checkpoint."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch

from structattn.data.folders import PreparedFolder, open_prepared
from structattn.inference.checkpoints import checkpoints_of, mean_weights
from structattn.inference.explanations import TrainedModel, explain_texts
from structattn.inference.records import Record
from structattn.models import EncoderDecoder
from structattn.runs.checkpoint import MODEL_NAME, Manifest
from structattn.runs.folder import RunFolder, settings_digest
from structattn.runs.store import update_of
from structattn.settings.run import RunSettings
from structattn.support.errors import CheckpointError, StructattnError, UsageError
from structattn.support.precision import default_device
from structattn.tasks.model import build_model_for
from structattn.training.learner import MismatchError, load_weights, require_finite

_logger = logging.getLogger("structattn")


@dataclass(frozen=True)
class TrainedRun:
    """A trained model with the settings and data of its run.

    Args:
        run_dir: the run folder.
        settings: the resolved settings.
        prepared: the data that the model was trained on, with its vocabulary and tokenizer.
        model: in evaluation mode, on its device.
        update: the update after which the weights were saved; for averaged weights, the last one.
        averaged_updates: the updates of all checkpoints whose weights were averaged, the last first.
    """

    run_dir: Path
    settings: RunSettings
    prepared: PreparedFolder
    model: TrainedModel
    update: int
    averaged_updates: tuple[int, ...] = ()

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The run card, ``run.json``: version, seed, digests, environment, hardware and result of training.

        Raises:
            StructattnError: it is missing or damaged.
        """
        return RunFolder(self.run_dir).read_card()

    def explain(self, texts: Sequence[str], targets: Sequence[str] | None = None) -> list[list[Record]]:
        """Return the attention weights of all layers and heads for each text.

        Args:
            texts: lines of text; strings of a formal language; inputs of a transduction, symbols separated by spaces;
                source lines, for translation.
            targets: answers of a transduction or translations, one for each text; None: greedy search finds them.

        Raises:
            DataError: a text or target cannot be encoded, or is too long for the model.
            UsageError: there is not one target for each text, or the task has no targets.
        """
        return explain_texts(self.model, self.prepared, self.settings, texts, targets)


def open_run(
    run_dir: Path, checkpoint: str | None = None, *, data: Path | None = None, device: torch.device | None = None
) -> TrainedRun:
    """Load a trained run. The digests of settings, weights and data are verified.

    The model computes in float32 also if it was trained in bfloat16, so that its results depend on the processor only
    by rounding; a message says so.

    Args:
        run_dir: the run folder.
        checkpoint: ``best``, ``last``, or ``best-K`` or ``last-K`` for the average of the weights of K checkpoints;
            None: as in the settings of the run.
        data: the prepared folder; None: the path in the settings.
        device: of the model; None: a GPU if there is one.

    Raises:
        StructattnError: the folder is not a run folder.
        SettingsError: the settings have changed since the run was started.
        CheckpointError: the checkpoint is missing or damaged, belongs to other data or another model, or has a weight
            that is NaN or infinite.
        DataError: the prepared folder is missing or damaged.
    """
    folder = RunFolder(run_dir)
    if not folder.has_run():
        raise StructattnError(f"{run_dir} is not a run folder: {folder.settings.name} is missing")
    settings = folder.read_settings()
    paths = checkpoints_of(run_dir, checkpoint or settings.evaluation.checkpoint)
    weights, manifest = mean_weights(paths)
    prepared = open_prepared(data or settings.data)
    _check_identity(paths[0], manifest, folder, settings, prepared)
    model = build_model_for(settings.model, prepared)
    try:
        load_weights(model, weights)
        require_finite(weights)
    except MismatchError as error:
        raise CheckpointError(
            f"{paths[0] / MODEL_NAME}: does not fit the model of {folder.settings}: {error}"
        ) from None
    if settings.training.precision != "float32":
        _logger.warning("%s: trained in %s, computes in float32", run_dir, settings.training.precision)
    updates = tuple(map(update_of, paths))
    trained = cast(TrainedModel, model.to(device or default_device()).eval())
    return TrainedRun(run_dir, settings, prepared, trained, manifest.update, updates)


def _check_identity(
    checkpoint: Path, manifest: Manifest, run: RunFolder, settings: RunSettings, prepared: PreparedFolder
) -> None:
    """Check that a checkpoint belongs to settings and data.

    Raises:
        CheckpointError: it does not; the message has both digests.
    """
    if manifest.data_digest != prepared.digest:
        raise CheckpointError(
            f"{checkpoint}: was trained on data with digest {manifest.data_digest}; that of {prepared.path} is "
            f"{prepared.digest}"
        )
    if manifest.settings_digest != (found := settings_digest(settings)):
        raise CheckpointError(
            f"{checkpoint}: was trained with settings of digest {manifest.settings_digest}; that of {run.settings} is "
            f"{found}"
        )


def translation_model(run: TrainedRun) -> EncoderDecoder:
    """Return the model of a translation run.

    Raises:
        UsageError: the model cannot translate.
    """
    if not isinstance(run.model, EncoderDecoder):
        raise UsageError(f"{run.run_dir}: a model of kind {run.settings.model.kind!r} cannot translate")
    return run.model

"""Opens a run folder for scoring: its settings, its data, its model with the weights of a checkpoint."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from structattn.building.models import build_model_for
from structattn.data.folders.prepared import PreparedFolder, open_prepared
from structattn.inference.checkpoints import checkpoints_of, mean_weights
from structattn.runs.checkpoint import MODEL_NAME
from structattn.runs.folder import RunFolder
from structattn.settings.run import RunSettings, load_settings
from structattn.support.errors import CheckpointError, StructattnError
from structattn.training.snapshot import MismatchError, put_weights


@dataclass(frozen=True)
class TrainedRun:
    """A run folder with all that is needed to use its model.

    Args:
        folder: the run folder.
        settings: its resolved settings.
        prepared: the data that it was trained on.
        model: a ``LanguageModel``, ``MaskedLanguageModel``, ``RecurrentLanguageModel`` or ``EncoderDecoder``, in
            evaluation mode, on its device.
        update: the update after which the weights were saved, of several the last.
        checkpoints: the updates of all whose weights were taken, the last first.
    """

    folder: Path
    settings: RunSettings
    prepared: PreparedFolder
    model: Any
    update: int
    checkpoints: tuple[int, ...] = ()


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def open_run(
    folder: Path, checkpoint: str | None = None, *, data: Path | None = None, device: torch.device | None = None
) -> TrainedRun:
    """Load what a run has learnt. Every byte of the weights is verified, and so is that the data are still the same.

    Args:
        folder: the run folder.
        checkpoint: ``best``, ``last``, or ``best-K`` or ``last-K`` for the mean of the weights of K of them; what the
            run's settings say, if left out.
        data: where the prepared folder is now; the path in the settings, if left out.
        device: where the model is to be; a GPU where there is one, if left out.

    Raises:
        StructattnError: the folder is no run folder.
        CheckpointError: the checkpoint is missing or damaged, or belongs to other data or another model.
        DataError: the prepared folder is missing or damaged.
    """
    if not RunFolder(folder).holds_a_run():
        raise StructattnError(f"{folder} is not a run folder: it has no settings.yaml")
    settings = load_settings(RunFolder(folder).settings)
    path, *others = checkpoints_of(folder, checkpoint or settings.evaluation.checkpoint)
    weights, manifest = mean_weights([path, *others])
    prepared = open_prepared(data or settings.data)
    if manifest.data_digest != prepared.digest:
        raise CheckpointError(
            f"{path}: belongs to data with digest {manifest.data_digest}; that of {prepared.path} is {prepared.digest}"
        )
    model = build_model_for(settings.model, prepared)
    try:
        put_weights(model, weights)
    except MismatchError as error:
        raise CheckpointError(
            f"{path / MODEL_NAME}: does not fit the model of {folder}/settings.yaml: {error}"
        ) from None
    updates = tuple(int(each.name) for each in (path, *others))
    return TrainedRun(folder, settings, prepared, model.to(device or _device()).eval(), manifest.update, updates)

"""Opens a run folder for scoring: its settings, its data, its model with the weights of a checkpoint."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch

from structattn.data.prepared import PreparedFolder, open_prepared
from structattn.models import LanguageModel, MaskedLanguageModel
from structattn.settings.run import RunSettings, load_settings
from structattn.support.errors import CheckpointError, StructattnError, UsageError
from structattn.tasks.build import build_model
from structattn.training.checkpoint import MODEL_NAME, read_manifest, read_tensors
from structattn.training.run_folder import RunFolder
from structattn.training.snapshot import MismatchError, put_weights

Which = Literal["best", "last"]


@dataclass(frozen=True)
class TrainedRun:
    """A run folder with all that is needed to use its model.

    Args:
        folder: the run folder.
        settings: its resolved settings.
        prepared: the data that it was trained on.
        model: in evaluation mode, on its device.
        update: the update after which the weights were saved.
    """

    folder: Path
    settings: RunSettings
    prepared: PreparedFolder
    model: LanguageModel | MaskedLanguageModel
    update: int


def checkpoint_of(folder: Path, which: Which = "best") -> Path:
    """The folder of a run's best checkpoint (least validation cross-entropy), or of its last one.

    Raises:
        CheckpointError: there is none.
        UsageError: ``which`` is another word.
    """
    if which not in get_args(Which):
        raise UsageError(f"checkpoint {which!r} is not one of {', '.join(get_args(Which))}")
    run = RunFolder(folder)
    update = _best_update(run.best) if which == "best" else _last_update(run.checkpoints)
    return run.checkpoints / str(update)


def _best_update(path: Path) -> int:
    try:
        update = json.loads(path.read_bytes())["update"]
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing: the run has not been validated yet; the last checkpoint may be used"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: does not name a checkpoint: {error!r}") from None
    if not isinstance(update, int):
        raise CheckpointError(f"{path}: update is {update!r}; expected a number")
    return update


def _last_update(folder: Path) -> int:
    names = [path.name for path in folder.glob("*")] if folder.is_dir() else []
    updates = [int(name) for name in names if re.fullmatch(r"[0-9]{1,18}", name)]
    if not updates:
        raise CheckpointError(f"{folder}: holds no checkpoint yet")
    return max(updates)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def open_run(
    folder: Path, checkpoint: Which = "best", *, data: Path | None = None, device: torch.device | None = None
) -> TrainedRun:
    """Load what a run has learnt. Every byte of the weights is verified, and so is that the data are still the same.

    Args:
        folder: the run folder.
        checkpoint: ``best`` or ``last``.
        data: where the prepared folder is now; the path in the settings, if left out.
        device: where the model is to be; a GPU where there is one, if left out.

    Raises:
        StructattnError: the folder is no run folder.
        CheckpointError: the checkpoint is missing or damaged, or belongs to other data or another model.
        DataError: the prepared folder is missing or damaged.
        UsageError: the model is of a kind that reads more than one sequence.
    """
    if not RunFolder(folder).holds_a_run():
        raise StructattnError(f"{folder} is not a run folder: it has no settings.yaml")
    settings = load_settings(RunFolder(folder).settings)
    path = checkpoint_of(folder, checkpoint)
    manifest = read_manifest(path)
    prepared = open_prepared(data or settings.data)
    if manifest.data_digest != prepared.digest:
        raise CheckpointError(
            f"{path}: belongs to data with digest {manifest.data_digest}; that of {prepared.path} is {prepared.digest}"
        )
    model = build_model(settings.model, prepared.vocabulary.size)
    if not isinstance(model, LanguageModel | MaskedLanguageModel):
        raise UsageError(f"{folder}: a model of kind {settings.model.kind!r} cannot be scored")
    try:
        put_weights(model, read_tensors(path, MODEL_NAME, manifest))
    except MismatchError as error:
        raise CheckpointError(
            f"{path / MODEL_NAME}: does not fit the model of {folder}/settings.yaml: {error}"
        ) from None
    return TrainedRun(folder, settings, prepared, model.to(device or _device()).eval(), manifest.update)

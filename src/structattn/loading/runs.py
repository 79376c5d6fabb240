"""Open a trained run: settings, data, and the model with the weights of a checkpoint."""

import copyreg
import logging
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from structattn.loading.trained_run import TrainedRun
from structattn.runs.checkpoint import MODEL_NAME, Manifest, read_manifest, update_of
from structattn.runs.extensions import run_digest
from structattn.runs.folder import RunFolder, existing_run
from structattn.runs.selection import (
    MismatchError,
    check_weights,
    checkpoints_of,
    load_weights,
    mean_weights,
    require_finite,
)
from structattn.runs.store import checkpoint_path
from structattn.settings.run import RunSettings
from structattn.support.devices import Precision, default_device, device_of, named_device, require_precision
from structattn.support.errors import CheckpointError
from structattn.tasks.loaded import TrainedModel
from structattn.tasks.model import build_model_for, expected_weights
from structattn.tasks.trained_data import open_data, require_trained_on
from structattn.text.folders.prepared import PreparedFolder

_logger = logging.getLogger("structattn")


def open_run(
    run_dir: str | PathLike[str],
    checkpoint: str | None = None,
    *,
    data: str | PathLike[str] | None = None,
    device: torch.device | None = None,
    precision: Precision = "float32",
) -> TrainedRun:
    """Load a trained run. The digests of settings, weights and data are verified.

    Unless ``precision`` says otherwise, the model computes in float32 also if it was trained in bfloat16, so that its
    results depend on the processor only by rounding; `--verbose` says so.

    Args:
        run_dir: the run folder.
        checkpoint: ``best``, ``last``, or ``best-K`` or ``last-K`` for the average of the weights of K checkpoints;
            None: as in the settings of the run.
        data: the prepared folder; None: the path in the settings.
        device: of the model; None: a GPU if there is one.
        precision: see ``load``.

    Raises:
        StructattnError: the folder is not a run folder.
        UsageError: ``checkpoint`` or ``precision`` is unknown, or bfloat16 is slow on the device.
        SettingsError: the settings have changed since the run was started.
        CheckpointError: the checkpoint is missing or damaged, belongs to other data or another model, or has a weight
            that is NaN or infinite.
        DataError: the prepared folder is missing or damaged.
    """
    how = _How(device or default_device(), precision)
    folder = existing_run(Path(run_dir))
    settings = folder.read_settings()
    paths = checkpoints_of(folder.path, checkpoint or settings.evaluation.checkpoint)
    return _open(folder, settings, paths, None if data is None else Path(data), how)


class _How(NamedTuple):
    device: torch.device
    precision: Precision


def _open(folder: RunFolder, settings: RunSettings, paths: Sequence[Path], data: Path | None, how: _How) -> TrainedRun:
    run_dir = folder.path
    require_precision(how.precision, how.device)
    weights, manifest = mean_weights(paths)
    prepared = open_data(run_dir, settings, data)
    _check_identity(paths[0], manifest, folder, settings, prepared)
    try:
        check_weights(
            weights, expected_weights(settings.model, prepared, recognition=settings.training.recognition)
        )  # before any memory is taken for the model
        require_finite(weights)
        model = build_model_for(settings.model, prepared, recognition=settings.training.recognition)
        load_weights(model, weights)
    except MismatchError as error:
        raise CheckpointError(
            f"{paths[0] / MODEL_NAME}: does not fit the model of {folder.settings}: {error}"
        ) from None
    for change in folder.changed_plugins():
        _logger.warning("%s: computes with another plugin than it was trained with: %s", run_dir, change)
    if settings.training.precision != how.precision:
        _logger.info("%s: trained in %s, computes in %s", run_dir, settings.training.precision, how.precision)
    updates, digests = tuple(map(update_of, paths)), tuple(map(_digest_of_weights, paths))
    trained = cast(TrainedModel, model.to(how.device).eval())
    return TrainedRun(run_dir, settings, prepared, trained, manifest.update, updates, digests, how.precision)


def _digest_of_weights(checkpoint: Path) -> str:
    return read_manifest(checkpoint).files[MODEL_NAME].sha256


def _reduced(run: TrainedRun) -> tuple[Any, ...]:
    """Return what ``pickle`` stores of a run: how it is loaded again.

    Raises:
        UsageError: it was not loaded from a checkpoint.
    """
    if not run.digests:
        run.__reduce__()  # refuses
    folders = run.run_dir.resolve(), run.prepared.path.resolve()
    how = str(device_of(run.model)), run.precision
    return load_again, (*folders, run.averaged_updates, run.digests, *how, run.settings)


copyreg.pickle(TrainedRun, _reduced)


def load_again(
    run_dir: Path,
    data: Path,
    updates: Sequence[int],
    digests: Sequence[str],
    device: str,
    precision: Precision,
    settings: RunSettings,
) -> TrainedRun:
    """Load a run that was pickled, see ``TrainedRun``, with the settings that it had then.

    Raises:
        CheckpointError: its checkpoints are missing, damaged, or others than then.
        StructattnError: as ``open_run``.
    """
    folder = existing_run(run_dir)
    paths = [checkpoint_path(folder.checkpoints, update) for update in updates]
    for path, digest in zip(paths, digests, strict=True):
        if _digest_of_weights(path) != digest:
            raise CheckpointError(f"{path}: is another checkpoint than the one that was pickled")
    how = _How(named_device(device), precision)
    return replace(_open(folder, folder.read_settings(), paths, data, how), settings=settings)


def _check_identity(
    checkpoint: Path, manifest: Manifest, run: RunFolder, settings: RunSettings, prepared: PreparedFolder
) -> None:
    """Check that a checkpoint belongs to settings and data.

    Raises:
        CheckpointError: it does not; the message has both digests.
    """
    require_trained_on(checkpoint, manifest.data_digest, prepared)
    if manifest.settings_digest != (present := run_digest(run, settings)):
        raise CheckpointError(
            f"{checkpoint}: was trained with settings of digest {manifest.settings_digest}; that of {run.settings} is "
            f"{present}"
        )


def load(
    run_dir: str | PathLike[str],
    checkpoint: str | None = None,
    device: str | torch.device = "auto",
    *,
    data: str | PathLike[str] | None = None,
    precision: Precision = "float32",
) -> TrainedRun:
    """Load a trained run of any kind; the digests of its weights and of its data are verified.

    Example::

        run = structattn.load("runs/dyck")
        run.settings, run.metadata, run.model
        for generation in run.generate(n=10)[0]:
            print(generation.text, generation.log_probability)
        for record in run.explain(["(())"])[0]:
            print(record.layer, record.head, record.weights)

    Args:
        run_dir: the run folder, made by ``structattn train``.
        checkpoint: ``best`` or ``last``; ``best-K`` or ``last-K`` for the average of the weights of K checkpoints;
            None: as ``evaluation.checkpoint`` in the settings of the run says, like ``evaluate`` and the commands.
        device: of the model, for instance ``cpu`` or ``cuda``; ``auto``: a GPU if there is one.
        data: the prepared folder; None: the path in the settings of the run.
        precision: of the products in the methods of the run: ``float32``, that of the weights, also after training in
            bfloat16; or ``bf16``, by ``torch.autocast``, for devices with instructions for it. ``run.model`` and
            ``evaluate`` compute in float32.

    Returns:
        The run, with ``settings``, ``metadata`` (the run card) and ``model`` (in evaluation mode); and, as its kind
        allows, ``generate``, ``score``, ``translate``, ``predict``, ``embed`` and ``explain``: see ``TrainedRun``.

    Raises:
        StructattnError: the folder is not a run folder.
        UsageError: ``checkpoint`` or ``precision`` is none of the above, bfloat16 is slow on the device, or the device
            is not there.
        SettingsError: the settings have changed since the run was started.
        CheckpointError: the checkpoint is missing or damaged, belongs to other data or another model, or has a weight
            that is NaN or infinite.
        DataError: the prepared folder is missing or damaged.
    """
    return open_run(run_dir, checkpoint, data=data, device=named_device(device), precision=precision)

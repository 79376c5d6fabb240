"""Checkpoints of a run by name (``best``, ``last``, ``best-5``, ``last-5``), and the average of their weights."""

import re
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from structattn.runs.checkpoint import MODEL_NAME, Identity, Manifest, check_identity, read_manifest, read_tensors
from structattn.runs.events import verified_events
from structattn.runs.folder import RunFolder
from structattn.runs.ranking import best_updates
from structattn.runs.store import checkpoint_path, checkpoint_updates
from structattn.support.errors import CheckpointError, UsageError
from structattn.support.json_files import read_json

_NAME = re.compile(r"(best|last)(?:-([1-9][0-9]{0,3}))?")


def checkpoints_of(run_dir: Path, name: str = "best") -> list[Path]:
    """Return the folders of the named checkpoints, the newest first.

    Args:
        run_dir: the run folder.
        name: ``best``: with the best validation score, cross-entropy or BLEU; ``last``: the newest; ``last-K``: the K
            newest; ``best-K``: the K best, which a run keeps if its settings name them for evaluation.

    Raises:
        CheckpointError: there are fewer than K, or not all of them were kept.
        UsageError: ``name`` is none of these.
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise UsageError(f"checkpoint {name!r} is not one of best, last, best-K, last-K")
    run, count = RunFolder(run_dir), int(match[2] or 1)
    if name == "best":
        updates = [best_update(run.best)]
    elif match[1] == "last":
        updates = sorted(checkpoint_updates(run.checkpoints))[-count:]
    else:
        updates = _best_updates(run, count)
    if len(updates) < count:
        raise CheckpointError(f"{run.checkpoints}: {name} needs {count} checkpoints; there are {len(updates)}")
    return [checkpoint_path(run.checkpoints, update) for update in sorted(updates, reverse=True)]


def mean_weights(folders: Sequence[Path]) -> tuple[dict[str, Tensor], Manifest]:
    """Return the average of the weights of several checkpoints of one run, and the manifest of the first.

    Sums are in float64. Tensors of integers are those of the first checkpoint. All digests are verified.

    Cost: the memory of three models, for any number of checkpoints.

    Raises:
        CheckpointError: a checkpoint is damaged, or was trained with other settings or data than the first.
    """
    manifest = read_manifest(folders[0])
    first = read_tensors(folders[0], MODEL_NAME, manifest)
    if len(folders) == 1:
        return first, manifest
    sums = {name: tensor.double() for name, tensor in first.items() if tensor.is_floating_point()}
    for folder in folders[1:]:
        other = read_manifest(folder)
        check_identity(folder, other, Identity(manifest.settings_digest, manifest.data_digest))
        weights = read_tensors(folder, MODEL_NAME, other)
        for name, total in sums.items():
            total.add_(_tensor_like(first[name], name, weights, folder))
    mean = {name: (total / len(folders)).to(first[name].dtype) for name, total in sums.items()}
    return {**first, **mean}, manifest


def _tensor_like(expected: Tensor, name: str, weights: dict[str, Tensor], folder: Path) -> Tensor:
    found = weights.get(name)
    if found is None or (found.shape, found.dtype) != (expected.shape, expected.dtype):
        raise CheckpointError(f"{folder / MODEL_NAME}: {name!r} differs in shape or dtype from other checkpoints")
    return found


def _best_updates(run: RunFolder, count: int) -> list[int]:
    kept = checkpoint_updates(run.checkpoints)
    best = best_updates(verified_events(run, ["validation"]), count, max(kept, default=0))
    missing = sorted({*best} - {*kept})
    if missing:
        raise CheckpointError(
            f"{run.checkpoints}: the checkpoint of update {missing[0]}, one of the {count} best, was not kept; "
            f"training keeps the {count} best if evaluation.checkpoint is best-{count}; best and last-K are available"
        )
    return best


def best_update(path: Path) -> int:
    """Return the update of the best checkpoint, from its file.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    if not path.exists():
        raise CheckpointError(
            f"{path} is missing: the run has not been validated yet; take the last one (evaluation.checkpoint=last)"
        )
    update = read_json(path, "best").get("update")
    if type(update) is not int or update < 0:
        raise CheckpointError(f"{path}: update is {update!r}; expected an integer")
    return update

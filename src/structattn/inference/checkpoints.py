"""Checkpoints of a run by name (``best``, ``last``, ``best-5``, ``last-5``), and the average of their weights."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from structattn.runs.checkpoint import MODEL_NAME, Manifest, read_manifest, read_tensors
from structattn.runs.folder import RunFolder
from structattn.runs.ranking import best_updates
from structattn.runs.store import checkpoint_path, checkpoint_updates
from structattn.support.errors import CheckpointError, UsageError

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
        updates = [_best_update(run.best)]
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
        CheckpointError: a checkpoint is damaged, or was trained on other data than the first.
    """
    manifest = read_manifest(folders[0])
    first = read_tensors(folders[0], MODEL_NAME, manifest)
    if len(folders) == 1:
        return first, manifest
    sums = {name: tensor.double() for name, tensor in first.items() if tensor.is_floating_point()}
    for folder in folders[1:]:
        other = read_manifest(folder)
        if other.data_digest != manifest.data_digest:
            raise CheckpointError(
                f"{folder}: was trained on data with digest {other.data_digest}; expected {manifest.data_digest}"
            )
        weights = read_tensors(folder, MODEL_NAME, other)
        for name, total in sums.items():
            total.add_(weights[name])
    mean = {name: (total / len(folders)).to(first[name].dtype) for name, total in sums.items()}
    return {**first, **mean}, manifest


def _best_updates(run: RunFolder, count: int) -> list[int]:
    kept = checkpoint_updates(run.checkpoints)
    best = best_updates(run.events, count, max(kept, default=0))
    missing = sorted({*best} - {*kept})
    if missing:
        raise CheckpointError(
            f"{run.checkpoints}: the checkpoint of update {missing[0]}, one of the {count} best, was not kept; "
            f"training keeps the {count} best if evaluation.checkpoint is best-{count}; best and last-K are available"
        )
    return best


def _best_update(path: Path) -> int:
    try:
        update = json.loads(path.read_bytes())["update"]
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is missing: the run has not been validated yet; use the last checkpoint"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: does not name a checkpoint: {error!r}") from None
    if not isinstance(update, int):
        raise CheckpointError(f"{path}: update is {update!r}; expected an integer")
    return update

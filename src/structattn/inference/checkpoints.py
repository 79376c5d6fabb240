"""Which of a run's checkpoints ``best``, ``last``, ``best-5``, ``last-5`` mean, and the mean of their weights."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from structattn.runs.checkpoint import MODEL_NAME, Manifest, read_manifest, read_tensors
from structattn.runs.folder import RunFolder
from structattn.runs.ranking import best_updates
from structattn.runs.store import checkpoint_updates
from structattn.support.errors import CheckpointError, UsageError

_WHICH = re.compile(r"(best|last)(?:-([1-9][0-9]{0,3}))?")


def checkpoints_of(folder: Path, which: str = "best") -> list[Path]:
    """The folders of the checkpoints that are meant, the newest first.

    Args:
        folder: a run folder.
        which: ``best``, of the best validation, by cross-entropy or by BLEU; ``last``, the newest; ``last-K``, the K
            newest; ``best-K``, the K best, which a run keeps that is to be evaluated so.

    Raises:
        CheckpointError: there are not so many, or not all of them were kept.
        UsageError: ``which`` is another word.
    """
    match = _WHICH.fullmatch(which)
    if not match:
        raise UsageError(f"checkpoint {which!r} is not one of best, last, best-K, last-K")
    run, count = RunFolder(folder), int(match[2] or 1)
    if which == "best":
        updates = [_best_update(run.best)]
    elif match[1] == "last":
        updates = sorted(checkpoint_updates(run.checkpoints))[-count:]
    else:
        updates = _best_updates(run, count)
    if len(updates) < count:
        raise CheckpointError(
            f"{run.checkpoints}: holds {len(updates) or 'no'} checkpoints of those asked for: {which}"
        )
    return [run.checkpoints / str(update) for update in sorted(updates, reverse=True)]


def mean_weights(folders: Sequence[Path]) -> tuple[dict[str, Tensor], Manifest]:
    """The mean of the weights of several checkpoints of one run, summed in float64, and the manifest of the first.

    What is no floating-point number is that of the first. Cost: the memory of three models, however many they are.

    Raises:
        CheckpointError: one is damaged, or belongs to other data.
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
                f"{folder}: belongs to data with digest {other.data_digest}, not {manifest.data_digest}"
            )
        weights = read_tensors(folder, MODEL_NAME, other)
        for name, total in sums.items():
            total.add_(weights[name])
    mean = {name: (total / len(folders)).to(first[name].dtype) for name, total in sums.items()}
    return {**first, **mean}, manifest


def _best_updates(run: RunFolder, count: int) -> list[int]:
    kept = checkpoint_updates(run.checkpoints)
    best = best_updates(run.events, count, max(kept, default=0))
    gone = sorted({*best} - {*kept})
    if gone:
        raise CheckpointError(
            f"{run.checkpoints}: the checkpoint of update {gone[0]}, one of the {count} best, was not kept; training "
            f"keeps them where the run's evaluation.checkpoint is best-{count}; best and last-K may be used"
        )
    return best


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

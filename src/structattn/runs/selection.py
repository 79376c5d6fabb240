"""Checkpoints of a run by name (``best``, ``last``, ``best-5``, ``last-5``), and the average of their weights."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from structattn.runs.checkpoint import (
    MODEL_NAME,
    Identity,
    LogPrefix,
    Manifest,
    check_identity,
    read_manifest,
    read_state_file,
    read_tensors,
)
from structattn.runs.folder import RunFolder
from structattn.runs.logs import digest_of_prefix, events_of
from structattn.runs.store import checkpoint_path, checkpoint_updates
from structattn.support.errors import CheckpointError, UsageError
from structattn.support.json_files import read_json


def selection_score(cross_entropy: float, bleu: float | None) -> float:
    """Return the score for model selection, lower is better: negative BLEU if given, otherwise the cross-entropy."""
    return cross_entropy if bleu is None else -bleu


def best_updates(validations: Sequence[Mapping[str, Any]], count: int, newest: int | None = None) -> list[int]:
    """Return the updates with the best validation scores, best first; ties go to the earlier update.

    There are at most ``count``; those after ``newest`` are ignored, if it is given.
    """
    scores = {event["update"]: selection_score(event["cross_entropy"], event.get("bleu")) for event in validations}
    candidates = [update for update in scores if newest is None or update <= newest]
    return sorted(candidates, key=lambda update: (scores[update], update))[:count]


def verified_events(run: RunFolder, kinds: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the events of a run, of a finished one without the end event; see ``events_of``.

    The log is compared with its digest in the run card, if the run is finished, else with that in the newest
    checkpoint; later events of a run in progress have no digest yet.

    Raises:
        CheckpointError: the log has changed, or the newest checkpoint of a run in progress is damaged.
        DataError: the log or the run card cannot be read.
    """
    finished = run.finished_log() if run.card.exists() else None
    recorded = finished or _log_of_newest_checkpoint(run)
    if recorded is not None:
        digest_of_prefix(run.events, recorded)
    return events_of(run.events, kinds, None if finished is None else finished.length)


def _log_of_newest_checkpoint(run: RunFolder) -> LogPrefix | None:
    updates = checkpoint_updates(run.checkpoints)
    if not updates:
        return None
    folder = checkpoint_path(run.checkpoints, max(updates))
    return read_state_file(folder, read_manifest(folder)).event_log


class MismatchError(ValueError):
    """Saved tensors do not match the learner; the message names one."""


def weights_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """Return the parameters and persistent buffers of a module by name; a tied parameter appears under its first name.

    Of a sharded module, all processes must call this together: they gather each tensor, on the CPU.
    """
    aliases = dict(module.named_parameters(remove_duplicate=False)).keys() - dict(module.named_parameters()).keys()
    return {name: whole(tensor) for name, tensor in module.state_dict().items() if name not in aliases}


def load_weights(module: torch.nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Copy saved tensors into a module.

    Raises:
        MismatchError: a name, shape or dtype differs.
    """
    live = weights_of(module)
    check_weights(saved, live)
    with torch.no_grad():
        for name, tensor in live.items():
            tensor.copy_(saved[name])


def check_weights(saved: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Compare names, shapes and dtypes of weights.

    Raises:
        MismatchError: one differs.
    """
    if different := sorted(expected.keys() ^ saved.keys()):
        raise MismatchError(f"{different[0]!r} is {'missing' if different[0] in expected else 'unknown to the model'}")
    for name, tensor in expected.items():
        check_like(name, saved[name], tensor)


def require_finite(tensors: Mapping[str, Tensor]) -> None:
    """Check that no weight is NaN or infinite.

    Raises:
        MismatchError: one is; the message names its tensor.
    """
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise MismatchError(f"{name!r} has a weight that is NaN or infinite")


def check_like(name: str, saved: Tensor, expected: Tensor) -> None:
    """Compare shape and dtype.

    Raises:
        MismatchError: they differ.
    """
    given, wanted = (tuple(saved.shape), saved.dtype), (tuple(expected.shape), expected.dtype)
    if given != wanted:
        raise MismatchError(f"{name!r} has shape {given[0]} and dtype {given[1]}, expected {wanted[0]} and {wanted[1]}")


def whole(tensor: Tensor) -> Tensor:
    """Gather a sharded tensor on the CPU, which all processes must do together; return others as they are."""
    return tensor.full_tensor().cpu() if hasattr(tensor, "full_tensor") else tensor


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
            tensor = weights.get(name)
            if tensor is None or (tensor.shape, tensor.dtype) != (first[name].shape, first[name].dtype):
                path = folder / MODEL_NAME
                raise CheckpointError(f"{path}: {name!r} differs in shape or dtype from other checkpoints")
            total.add_(tensor)
    mean = {name: (total / len(folders)).to(first[name].dtype) for name, total in sums.items()}
    return {**first, **mean}, manifest


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
        if not checkpoint_updates(RunFolder(path.parent).checkpoints):
            raise CheckpointError(f"{path.parent}: the run has no checkpoint")
        raise CheckpointError(
            f"{path} is missing: the run has not been validated yet; resume it, or take its last checkpoint "
            "(evaluation.checkpoint=last; not with train --from)"
        )
    update = read_json(path, "best").get("update")
    if type(update) is not int or update < 0:
        raise CheckpointError(f"{path}: update is {update!r}; expected an integer")
    return update

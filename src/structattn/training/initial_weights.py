"""The weights of another run, from which a new one starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from structattn.runs.checkpoint import MODEL_NAME, read_manifest, read_tensors
from structattn.runs.folder import RunFolder, existing_run
from structattn.runs.selection import MismatchError, checkpoints_of, require_finite, weights_of
from structattn.runs.store import checkpoint_updates
from structattn.settings.run import RunSettings
from structattn.support.errors import CheckpointError
from structattn.support.grouping import listed
from structattn.tasks.model import expected_weights, vocabulary_weights
from structattn.text.folders.header import read_header
from structattn.text.folders.prepared import PreparedFolder


@dataclass(frozen=True)
class InitialWeights:
    """The best checkpoint of another run.

    Args:
        update: the update after which the weights were saved.
        other_words: the names of weights that belong to words, where those of that run are others; these are not taken.
    """

    run_dir: Path
    update: int
    sha256: str
    tensors: Mapping[str, Tensor] = field(repr=False)
    other_words: frozenset[str] = frozenset()

    def load_into(self, model: nn.Module) -> None:
        """Copy the tensors that have the name, shape and dtype of one of the model, and do not belong to other words.

        Raises:
            CheckpointError: there is none.
        """
        live = weights_of(model)
        taken = self.compare(live)["taken"]
        if not taken:
            raise CheckpointError(f"{self.run_dir}: no tensor of this run has the name, shape and dtype of one here")
        with torch.no_grad():
            for name in taken:
                live[name].copy_(self.tensors[name])

    def compare(self, weights: Mapping[str, Tensor]) -> dict[str, Any]:
        """Return the entry of the run card: the names of the tensors that a model with these weights takes.

        ``taken`` have the same name, shape and dtype in both, ``new`` are only in the model, ``unused`` only in the
        other run; of ``other_shape`` both shapes are given, first that in the other run. These are not taken, either,
        nor are those of ``other_words``.
        """
        saved = self.tensors
        live = {name: tensor for name, tensor in weights.items() if name not in self.other_words}
        both = [name for name in live if name in saved]
        fits = {name: (live[name].shape, live[name].dtype) == (saved[name].shape, saved[name].dtype) for name in both}
        shapes = {name: [list(saved[name].shape), list(live[name].shape)] for name in both if not fits[name]}
        return {
            "run": str(self.run_dir.resolve()),
            "update": self.update,
            "sha256": self.sha256,
            "taken": [name for name in both if fits[name]],
            "other_words": [name for name in weights if name in self.other_words],
            "new": [name for name in live if name not in saved],
            "other_shape": shapes,
            "unused": [name for name in saved if name not in weights],
        }


def describe(description: Mapping[str, Any]) -> str:
    """Return what was taken from another run in one line."""
    shapes = [
        f"{name} {tuple(there)} instead of {tuple(here)}" for name, (there, here) in description["other_shape"].items()
    ]
    parts = {
        "not taken, of other words": description.get("other_words", []),
        "new": description["new"],
        "not taken, of another shape": shapes,
        "unused": description["unused"],
    }
    lists = [f"{len(names)} {what}: {listed(names)}" for what, names in parts.items() if names]
    count = len(description["taken"])
    taken = f"{count} tensor{'s' * (count != 1)} taken from {description['run']}, update {description['update']}"
    return "; ".join([taken, *lists])


def read_initial_weights(run_dir: Path, prepared: PreparedFolder, settings: RunSettings) -> InitialWeights:
    """Read the best checkpoint of another run.

    Where its tokenizer is not that of the data, the weights that belong to words are left out, and the others must
    have the shapes that they have here.

    Raises:
        StructattnError: there is no run.
        CheckpointError: a shape differs beside another tokenizer, the checkpoint is damaged, or a weight is not finite.
        DataError: the run card does not have the digest of the tokenizer, and its data are missing.
    """
    run = existing_run(run_dir)
    (checkpoint,) = checkpoints_of(run_dir, "best")
    manifest = read_manifest(checkpoint)
    tensors = read_tensors(checkpoint, MODEL_NAME, manifest)
    try:
        require_finite(tensors)
    except MismatchError as error:
        raise CheckpointError(f"{checkpoint / MODEL_NAME}: {error}") from None
    initial = InitialWeights(run_dir, manifest.update, manifest.files[MODEL_NAME].sha256, tensors)
    if _has_tokenizer_of(run, prepared):
        return initial
    model = settings.model, prepared
    recognition = settings.training.recognition
    initial = replace(initial, other_words=vocabulary_weights(*model, recognition))
    shapes = initial.compare(expected_weights(*model, recognition=recognition))["other_shape"]
    for name, (there, here) in shapes.items():
        raise CheckpointError(
            f"{run_dir}: its {name} has the shape {tuple(there)}, and here {tuple(here)}; from a run with another "
            "tokenizer all weights are taken but those of words"
        )
    return initial


def read_again(run_dir: RunFolder, prepared: PreparedFolder, settings: RunSettings) -> InitialWeights | None:
    """Return the initial weights of a run that is resumed before its first checkpoint; None if it needs none.

    Raises:
        CheckpointError: they have changed.
        StructattnError: they cannot be read.
    """
    described = run_dir.read_card().get("initial_weights")
    if described is None or checkpoint_updates(run_dir.checkpoints):
        return None
    initial = read_initial_weights(Path(described["run"]), prepared, settings)
    if initial.sha256 != described["sha256"]:
        raise CheckpointError(
            f"{run_dir.path}: has no checkpoint yet, and the weights of {described['run']} from which it started have "
            f"changed: their SHA-256 was {described['sha256']} and is {initial.sha256}; start it again in another "
            "folder"
        )
    return initial


def _has_tokenizer_of(run: RunFolder, prepared: PreparedFolder) -> bool:
    card = run.read_card()
    if card["data"]["digest"] == prepared.digest:
        return True
    before = card.get("tokenizer") or read_header(run.read_settings().data)[0].tokenizer_digests
    return bool(before == prepared.header.tokenizer_digests)

"""Batches of labelled strings, with the targets of their auxiliary losses."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from structattn.settings.training import Batches, PairBatches, Recognition, StreamBatches
from structattn.support.errors import DataError, SettingsError
from structattn.support.shapes import Bool
from structattn.support.special_tokens import CLASS_OFFSET, FIRST_SYMBOL, PAD
from structattn.tasks.language_modeling.batches import Examples
from structattn.tasks.recognition.examples import MEMBER
from structattn.tasks.recognition.language import RecognitionLanguage, String
from structattn.tasks.recognition.prepare import language_of
from structattn.text.batching.sequences import Batch, Indices
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.folders.sequences import Sequences


@dataclass(frozen=True)
class RecognitionBatch(Batch):
    """A batch whose targets are those of members only, ``<pad>`` in negatives; see ``Batch``.

    Args:
        labels: whether each string is a member.
        next_symbols: for each position, the classes that may follow, false in negatives and padding; None: not used.
    """

    labels: Bool[Tensor, " batch"]
    next_symbols: Bool[Tensor, "batch time classes"] | None = None


@dataclass(frozen=True)
class RecognitionExamples:
    """The labelled strings of a split.

    Args:
        edits: where each string comes from; see ``write_prepared``.
        language: gives the next symbols of members; None: they are not needed.
        num_classes: the number of symbols, and <eos>.
    """

    examples: Examples
    edits: np.ndarray
    language: RecognitionLanguage | None
    num_classes: int

    def training_order(self, epoch: int) -> list[Indices]:
        """Return the shuffled batches of an epoch."""
        return self.examples.training_order(epoch)

    def scoring_order(self) -> list[Indices]:
        """Return all strings in batches without shuffling."""
        return self.examples.scoring_order()

    def batch(self, indices: Indices) -> RecognitionBatch:
        """Return the strings with these indices."""
        batch, members = self.examples.batch(indices), torch.from_numpy(self.edits[indices] == MEMBER)
        targets = torch.where(members[:, None], batch.targets, PAD)
        following = None if self.language is None else self._next_symbols(indices, batch)
        return RecognitionBatch(batch.inputs, targets, batch.lengths, batch.examples, members, following)

    def _next_symbols(self, indices: Indices, batch: Batch) -> Bool[Tensor, "batch time classes"]:
        allowed = np.zeros((*batch.inputs.shape, self.num_classes), dtype=bool)
        for row, index in enumerate(indices.tolist()):
            if self.edits[index] == MEMBER:
                known = self._known.get(index)
                if known is None:
                    known = self._known[index] = self._sets_of(string_of(self.examples.sequences, index))
                allowed[row, : len(known)] = known
        return torch.from_numpy(allowed)

    def _sets_of(self, string: String) -> np.ndarray:
        """Return the sets of a member as (n + 1, classes); class 0 is <eos>."""
        assert self.language is not None
        sets = self.language.next_symbols(string)
        allowed = np.zeros((len(sets), self.num_classes), dtype=bool)
        for row, symbols in enumerate(sets):
            allowed[row, [(symbol + 1) % self.num_classes for symbol in symbols]] = True
        return allowed

    @cached_property
    def _known(self) -> dict[int, np.ndarray]:
        """The sets of members that have been in a batch."""
        return {}


def string_of(sequences: Sequences, index: int) -> String:
    """Return a string of a split as indices into the alphabet."""
    return tuple((np.asarray(sequences[index], dtype=np.int64) - FIRST_SYMBOL).tolist())


def recognition_examples(
    prepared: PreparedFolder, split: str, batches: Batches, recognition: Recognition, seed: int = 0
) -> RecognitionExamples:
    """Return the labelled strings of a split.

    Raises:
        DataError: the folder holds data of another kind, has no such split, or an empty one.
        SettingsError: the batches are of the wrong kind.
    """
    language = language_of(prepared)
    if isinstance(batches, StreamBatches | PairBatches):
        raise SettingsError(f"training.batches.kind: {batches.kind!r}; recognition needs 'sequences' or 'tokens'")
    sequences = prepared.split(split)
    if not len(sequences):
        raise DataError(prepared.path / split, "holds no strings")
    return RecognitionExamples(
        Examples(sequences, batches, seed),
        np.asarray(prepared.edits(split)),
        language if recognition.next_symbols else None,
        prepared.vocabulary.size - CLASS_OFFSET,
    )

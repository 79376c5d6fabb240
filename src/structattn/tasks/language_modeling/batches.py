"""The examples of a split in batches, and the kinds of batches that suit each kind of data."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from structattn.settings.training import (
    Batches,
    CurriculumStage,
    PairBatches,
    SequenceBatches,
    StreamBatches,
    TokenBatches,
)
from structattn.support.errors import DataError, SettingsError
from structattn.support.seeds import derived_seed
from structattn.text.batching.sequences import (
    Batch,
    Indices,
    make_batch,
    make_stream_batch,
    sequence_batches,
    stream_batches,
    token_batches,
)
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.folders.sequences import Sequences

BatchSettings = SequenceBatches | TokenBatches | StreamBatches

SCORING_FACTOR = 4  # without gradients, that many times more sequences fit into a batch


@dataclass(frozen=True)
class Examples:
    """The examples of one split: its sequences, or windows of the stream that they form.

    Args:
        seed: determines the order of the batches in training.
        curriculum: stages of training on short sequences; none for windows.
    """

    sequences: Sequences
    batches: BatchSettings
    seed: int = 0
    curriculum: Sequence[CurriculumStage] = ()

    @property
    def num_examples(self) -> int:
        """The number of sequences or windows."""
        if isinstance(self.batches, StreamBatches):
            return -(-self.sequences.num_targets // self.batches.sequence_length)
        return len(self.sequences)

    def training_order(self, epoch: int) -> list[Indices]:
        """Return the shuffled batches of an epoch, a pure function of (seed, epoch)."""
        ends = accumulate(stage.epochs for stage in self.curriculum)
        stage = next((stage for stage, end in zip(self.curriculum, ends, strict=True) if epoch < end), None)
        if stage is None:
            return self._plan(self.batches, epoch)
        short = np.flatnonzero(self.sequences.lengths <= stage.max_length)
        return [short[batch] for batch in self._plan(self.batches, epoch, self.sequences.lengths[short])]

    def scoring_order(self) -> list[Indices]:
        """Return all examples in batches without shuffling, with more sequences per batch than in training."""
        batches = self.batches
        if isinstance(batches, SequenceBatches):
            batches = SequenceBatches(batch_size=batches.batch_size * SCORING_FACTOR)
        return self._plan(batches, None)

    def batch(self, indices: Indices) -> Batch:
        """Return the examples with these indices as tensors."""
        if isinstance(self.batches, StreamBatches):
            return make_stream_batch(self.sequences, indices, self.batches.sequence_length)
        return make_batch(self.sequences, indices)

    def _plan(self, batches: BatchSettings, epoch: int | None, lengths: Indices | None = None) -> list[Indices]:
        """Plan the batches of all sequences, or of some with these lengths."""
        seed, lengths = derived_seed(self.seed, "batches"), self.sequences.lengths if lengths is None else lengths
        if isinstance(batches, StreamBatches):
            return stream_batches(self.sequences.num_targets, batches.sequence_length, batches.batch_size, seed, epoch)
        if isinstance(batches, TokenBatches):
            return token_batches(lengths, batches.max_tokens, seed, epoch)
        return sequence_batches(lengths, batches.batch_size, seed, epoch)


def split_examples(
    prepared: PreparedFolder,
    split: str,
    batches: BatchSettings,
    seed: int = 0,
    curriculum: Sequence[CurriculumStage] = (),
) -> Examples:
    """Return the examples of a split.

    Raises:
        DataError: the folder has no such split, or the split is empty or has no short sequences for the curriculum.
        SettingsError: there is a curriculum, but the examples are windows of a stream.
    """
    sequences = prepared.split(split)
    if not len(sequences):
        raise DataError(prepared.path / split, "holds no sequences")
    if curriculum:
        max_length = curriculum[0].max_length
        if isinstance(batches, StreamBatches):
            raise SettingsError("training.curriculum: windows of a stream have one length; expected sentences, or none")
        shortest = int(sequences.lengths.min())
        if shortest > max_length:
            raise DataError(
                prepared.path / split,
                f"the shortest sequence has {shortest} tokens; training.curriculum expected some of at most "
                f"{max_length}",
            )
    return Examples(sequences, batches, seed, curriculum)


def text_batches(prepared: PreparedFolder, batches: Batches, task: str = "language_modeling") -> BatchSettings:
    """Check that the batches suit the text: sentences in batches of sentences, a stream in windows.

    Raises:
        DataError: the folder does not hold text.
        SettingsError: the batches are of the wrong kind.
    """
    if prepared.kind not in ("sentences", "stream"):
        raise DataError(
            prepared.path,
            f"holds data of kind {prepared.kind!r}; the task {task} needs 'sentences' or 'stream'",
        )
    if isinstance(batches, PairBatches) or isinstance(batches, StreamBatches) != (prepared.kind == "stream"):
        expected = "'stream'" if prepared.kind == "stream" else "'sequences' or 'tokens'"
        raise SettingsError(
            f"training.batches.kind: {batches.kind!r} does not suit {prepared.path}, whose kind is {prepared.kind!r}; "
            f"expected {expected}"
        )
    return batches


def formal_language_batches(prepared: PreparedFolder, batches: Batches) -> BatchSettings:
    """Check that the data are a formal language and that each batch consists of whole strings.

    Raises:
        DataError: the folder does not hold a formal language.
        SettingsError: the batches are of the wrong kind.
    """
    if prepared.kind != "formal_language":
        raise DataError(
            prepared.path, f"holds data of kind {prepared.kind!r}; the task formal_language needs 'formal_language'"
        )
    if isinstance(batches, StreamBatches):
        raise SettingsError("training.batches.kind: 'stream' would join strings; expected 'sequences' or 'tokens'")
    if isinstance(batches, PairBatches):
        raise SettingsError("training.batches.kind: 'pairs' are for translation; expected 'sequences' or 'tokens'")
    return batches

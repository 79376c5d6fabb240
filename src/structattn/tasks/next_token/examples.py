"""A split together with the way in which it is cut into batches."""

from dataclasses import dataclass

from structattn.data.batching.sequences import (
    Batch,
    Indices,
    make_batch,
    make_stream_batch,
    sequence_batches,
    stream_batches,
    token_batches,
)
from structattn.data.folders import PreparedFolder, Sequences
from structattn.settings.training import SequenceBatches, StreamBatches, TokenBatches
from structattn.support.errors import DataError
from structattn.support.seeds import derived_seed

BatchSettings = SequenceBatches | TokenBatches | StreamBatches

SCORING_FACTOR = 4  # without gradients, that many times more sequences fit into a batch


@dataclass(frozen=True)
class Examples:
    """The examples of one split: its sequences, or the windows of the stream that they form.

    Args:
        sequences: the split.
        batches: how it is cut.
        seed: decides the order of the batches in training.
    """

    sequences: Sequences
    batches: BatchSettings
    seed: int = 0

    def training_order(self, epoch: int) -> list[Indices]:
        """The shuffled batches of an epoch, a pure function of (seed, epoch)."""
        return self._plan(self.batches, epoch)

    def scoring_order(self) -> list[Indices]:
        """All examples in batches without shuffling, more sequences in each than for training."""
        batches = self.batches
        if isinstance(batches, SequenceBatches):
            batches = SequenceBatches(batch_size=batches.batch_size * SCORING_FACTOR)
        return self._plan(batches, None)

    def batch(self, indices: Indices) -> Batch:
        """The examples of these numbers as tensors."""
        if isinstance(self.batches, StreamBatches):
            return make_stream_batch(self.sequences, indices, self.batches.sequence_length)
        return make_batch(self.sequences, indices)

    def _plan(self, batches: BatchSettings, epoch: int | None) -> list[Indices]:
        seed = derived_seed(self.seed, "batches")
        if isinstance(batches, StreamBatches):
            return stream_batches(self.sequences.num_targets, batches.sequence_length, batches.batch_size, seed, epoch)
        if isinstance(batches, TokenBatches):
            return token_batches(self.sequences.lengths, batches.max_tokens, seed, epoch)
        return sequence_batches(self.sequences.lengths, batches.batch_size, seed, epoch)


def examples_of(prepared: PreparedFolder, split: str, batches: BatchSettings, seed: int = 0) -> Examples:
    """The examples of a prepared folder's split.

    Raises:
        DataError: there is no such split, or it is empty.
    """
    sequences = prepared.split(split)
    if not len(sequences):
        raise DataError(prepared.path / split, "holds no sequences")
    return Examples(sequences, batches, seed)

"""Batches of sentence pairs for an encoder-decoder."""

from dataclasses import dataclass

import numpy as np

from structattn.settings.training import PairBatches
from structattn.support.errors import DataError
from structattn.support.seeds import derived_seed
from structattn.text.batching.corruption import SubwordDropout
from structattn.text.batching.pairs import LimitedSide, PairBatch, make_pair_batch, pair_token_batches
from structattn.text.batching.sequences import Indices
from structattn.text.folders.parallel import Pairs
from structattn.text.folders.prepared import PreparedFolder


@dataclass(frozen=True)
class PairExamples:
    """The pairs of one split in batches.

    Examples are numbered through all epochs: in epoch e, pair i of n is example e·n + i. A batch is therefore a
    function of its example numbers even with BPE-dropout, which resegments each pair in each epoch.

    Args:
        tokens: the maximum padded size of a batch.
        limited: the side or sides that the maximum applies to; see ``pair_token_batches``.
        seed: determines the order of the batches in training.
        dropout: BPE-dropout; for training only.
    """

    pairs: Pairs
    tokens: int
    limited: LimitedSide = "both"
    seed: int = 0
    dropout: SubwordDropout | None = None

    def training_order(self, epoch: int) -> list[Indices]:
        """Return the shuffled batches of an epoch, a pure function of (seed, epoch)."""
        return [batch + epoch * len(self.pairs) for batch in self._plan(epoch)]

    def scoring_order(self) -> list[Indices]:
        """Return all pairs in batches by increasing length."""
        return self._plan(None)

    def batch(self, numbers: Indices) -> PairBatch:
        """Return the examples with these numbers as tensors; ``examples`` of the batch are the indices of the pairs.

        Raises:
            ValueError: the numbers belong to several epochs.
        """
        epochs, indices = np.divmod(numbers, len(self.pairs))
        if len(set(epochs.tolist())) > 1:
            raise ValueError(f"examples {int(numbers.min())} to {int(numbers.max())} belong to several epochs")
        return make_pair_batch(self.pairs, indices, self.dropout, int(epochs[0]) if len(epochs) else 0)

    def _plan(self, epoch: int | None) -> list[Indices]:
        lengths = self.pairs.source.lengths, self.pairs.target.lengths
        seed = derived_seed(self.seed, "batches")
        return pair_token_batches(*lengths, self.tokens, seed, epoch, limited=self.limited)


def training_pairs(
    prepared: PreparedFolder, batches: PairBatches, seed: int, max_length: int | None = None
) -> PairExamples:
    """Return the training pairs of a prepared folder.

    Args:
        prepared: the folder.
        batches: the batch size, and the rates of BPE-dropout of source and target.
        seed: determines the order of the batches and the BPE-dropout.
        max_length: the maximum number of tokens of a line, <eos> excluded; None for no limit.

    Raises:
        DataError: the folder is of another kind or has no training pairs.
        UsageError: the tokenizer does not support BPE-dropout.
    """
    rates, dropout = (batches.source_bpe_dropout, batches.target_bpe_dropout), None
    if any(rates):
        dropout = SubwordDropout(prepared.sides, *rates, derived_seed(seed, "subwords"), max_length)
    return PairExamples(_nonempty_pairs(prepared, "train"), batches.max_tokens, batches.max_tokens_of, seed, dropout)


def scoring_pairs(prepared: PreparedFolder, split: str, tokens: int, limited: LimitedSide) -> PairExamples:
    """Return the pairs of any split without BPE-dropout.

    Raises:
        DataError: the folder is of another kind, or the split is missing or empty.
    """
    return PairExamples(_nonempty_pairs(prepared, split), tokens, limited)


def _nonempty_pairs(prepared: PreparedFolder, split: str) -> Pairs:
    pairs = prepared.pairs(split)
    if not len(pairs):
        raise DataError(prepared.path / split, "holds no pairs")
    return pairs

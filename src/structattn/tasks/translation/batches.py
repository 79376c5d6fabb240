"""The pairs of a prepared folder, and how they become what an encoder-decoder reads and predicts."""

from dataclasses import dataclass

import numpy as np

from structattn.data.batching.pairs import LimitedSide, PairBatch, make_pair_batch, pair_token_batches
from structattn.data.batching.sequences import Indices
from structattn.data.batching.subword_dropout import SubwordDropout
from structattn.data.folders import Pairs, PreparedFolder
from structattn.settings.training import PairBatches
from structattn.support.errors import DataError
from structattn.support.seeds import derived_seed


@dataclass(frozen=True)
class PairExamples:
    """The pairs of one split together with the way in which they are cut into batches.

    Examples are numbered through all epochs: in epoch e, pair i of n is example e·n + i. So a batch is a function of
    its numbers alone even where subwords are drawn anew in each epoch.

    Args:
        pairs: the split.
        tokens: the largest padded size of a batch.
        limited: of which side, or of both; see ``pair_token_batches``.
        seed: decides the order of the batches in training.
        dropout: cuts subwords anew; for training alone.
    """

    pairs: Pairs
    tokens: int
    limited: LimitedSide = "both"
    seed: int = 0
    dropout: SubwordDropout | None = None

    def training_order(self, epoch: int) -> list[Indices]:
        """The shuffled batches of an epoch, a pure function of (seed, epoch)."""
        return [batch + epoch * len(self.pairs) for batch in self._plan(epoch)]

    def scoring_order(self) -> list[Indices]:
        """All pairs in batches by rising length."""
        return self._plan(None)

    def batch(self, numbers: Indices) -> PairBatch:
        """The examples of these numbers, all of one epoch, as tensors; ``examples`` of the batch are the pairs.

        Raises:
            ValueError: they are of several epochs.
        """
        epochs, indices = np.divmod(numbers, len(self.pairs))
        if len(set(epochs.tolist())) > 1:
            raise ValueError(f"examples {int(numbers.min())} to {int(numbers.max())} are not of one epoch")
        return make_pair_batch(self.pairs, indices, self.dropout, int(epochs[0]) if len(epochs) else 0)

    def _plan(self, epoch: int | None) -> list[Indices]:
        lengths = self.pairs.source.lengths, self.pairs.target.lengths
        seed = derived_seed(self.seed, "batches")
        return pair_token_batches(*lengths, self.tokens, seed, epoch, limited=self.limited)


def pairs_to_train_on(
    prepared: PreparedFolder, batches: PairBatches, seed: int, longest: int | None = None
) -> PairExamples:
    """The training pairs of a prepared folder.

    Args:
        prepared: the folder.
        batches: their size, and the rates at which merges of the source and of the target are left out.
        seed: decides the order of the batches, and the draws of dropout.
        longest: tokens of a line, <eos> not counted, that the model can read; None: any number.

    Raises:
        DataError: it holds something else, or has no training pairs.
        UsageError: its symbols allow no dropout.
    """
    rates, drawn = (batches.source_bpe_dropout, batches.target_bpe_dropout), None
    if any(rates):
        drawn = SubwordDropout(prepared.sides, *rates, derived_seed(seed, "subwords"), longest)
    return PairExamples(_some_pairs(prepared, "train"), batches.max_tokens, batches.max_tokens_of, seed, drawn)


def pairs_to_score(prepared: PreparedFolder, split: str, tokens: int, limited: LimitedSide) -> PairExamples:
    """The pairs of any split, as they stand.

    Raises:
        DataError: the folder holds something else, or there are no such pairs.
    """
    return PairExamples(_some_pairs(prepared, split), tokens, limited)


def _some_pairs(prepared: PreparedFolder, split: str) -> Pairs:
    pairs = prepared.pairs(split)
    if not len(pairs):
        raise DataError(prepared.path / split, "holds no pairs")
    return pairs

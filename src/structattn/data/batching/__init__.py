"""Batches of sequences and of pairs, as pure functions of (seed, epoch). This package needs torch.

- ``sequence_batches``, ``token_batches``, ``stream_batches`` and ``pair_token_batches`` plan the batches of an epoch.
- ``make_batch``, ``make_stream_batch`` and ``make_pair_batch`` build a ``Batch`` or ``PairBatch`` of tensors.
- ``SubwordDropout`` segments pairs anew in each epoch; ``UnknownWords`` holds the characters of unknown words.
"""

from structattn.data.batching.pairs import PairBatch, make_pair_batch, pair_token_batches
from structattn.data.batching.sequences import (
    Batch,
    make_batch,
    make_stream_batch,
    sequence_batches,
    stream_batches,
    token_batches,
)
from structattn.data.batching.subword_dropout import SubwordDropout
from structattn.data.batching.unknown_words import UnknownWords

__all__ = [
    "Batch",
    "PairBatch",
    "SubwordDropout",
    "UnknownWords",
    "make_batch",
    "make_pair_batch",
    "make_stream_batch",
    "pair_token_batches",
    "sequence_batches",
    "stream_batches",
    "token_batches",
]

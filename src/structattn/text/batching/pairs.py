"""Batches of pairs, as pure functions of (seed, epoch); see ``sequences`` for single sequences."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structattn.support.seeds import numpy_generator
from structattn.support.shapes import Int64
from structattn.support.sizes import require_positive
from structattn.support.special_tokens import BOS, EOS
from structattn.text.batching.corruption import SubwordDropout, UnknownWords, unknown_words
from structattn.text.batching.sequences import Indices, pad, shuffle_batches
from structattn.text.folders.parallel import Pairs, RareWords

LimitedSide = Literal["source", "target", "both", "sum"]


@dataclass(frozen=True)
class PairBatch:
    """A batch for an encoder-decoder, which predicts ``targets[:, t]`` from ``source`` and ``inputs[:, : t + 1]``.

    Args:
        source: ``s1 .. sn <eos>``; then ``<pad>``.
        source_lengths: n + 1 for each row.
        inputs: ``<bos> t1 .. tm``; then ``<pad>``.
        targets: ``t1 .. tm <eos>``; then ``<pad>``.
        lengths: m + 1 for each row.
        examples: the index of the pair of each row.
        unknown_source_words: the words of ``source`` that are ``<unk>``, if the data store their characters.
        unknown_target_words: the same for ``targets``.
    """

    source: Int64[Tensor, "batch source"]
    source_lengths: Int64[Tensor, " batch"]
    inputs: Int64[Tensor, "batch time"]
    targets: Int64[Tensor, "batch time"]
    lengths: Int64[Tensor, " batch"]
    examples: tuple[int, ...]
    unknown_source_words: UnknownWords | None = None
    unknown_target_words: UnknownWords | None = None

    def to(self, device: torch.device | str) -> "PairBatch":
        """Move the tensors to a device."""
        names = ("source", "source_lengths", "inputs", "targets", "lengths")
        return PairBatch(
            **{name: getattr(self, name).to(device) for name in names},
            examples=self.examples,
            unknown_source_words=None if self.unknown_source_words is None else self.unknown_source_words.to(device),
            unknown_target_words=None if self.unknown_target_words is None else self.unknown_target_words.to(device),
        )


def pair_token_batches(
    source_lengths: Sequence[int] | Indices,
    target_lengths: Sequence[int] | Indices,
    tokens: int,
    seed: int,
    epoch: int | None,
    *,
    limited: LimitedSide = "both",
) -> list[Indices]:
    """Plan batches of pairs of similar lengths whose padded size is at most ``tokens``.

    The padded size of a side is rows × (its longest length + 1). A single pair above the limit forms a batch
    of its own; no other batch exceeds it. Pairs are sorted by the length of the limited side, or by the sum if both
    are limited (DuSell & Chiang 2024, appendix G); pairs of equal length are shuffled anew in each epoch, and so is
    the order of the batches. Without an epoch batches are in ascending order of length, ties in file order.

    Args:
        source_lengths: the number of source tokens of each pair.
        target_lengths: the number of target tokens of each pair.
        tokens: the maximum padded size of a batch, including the position of ``<bos>`` or ``<eos>``.
        seed: determines the order together with the epoch.
        epoch: the epoch, from 0; ``None`` for no shuffling.
        limited: what the limit applies to: the ``source`` side, the ``target`` side, each of ``both`` sides,
            or the ``sum`` of both.

    Raises:
        ValueError: ``tokens`` is below 1, the numbers of lengths differ, or ``limited`` is not one of these.
    """
    require_positive(tokens=tokens)
    if limited not in get_args(LimitedSide):
        raise ValueError(f"limited is {limited!r}; expected one of {list(get_args(LimitedSide))}")
    lengths = np.asarray(source_lengths, dtype=np.int64), np.asarray(target_lengths, dtype=np.int64)
    if lengths[0].shape != lengths[1].shape:
        raise ValueError(
            f"{len(lengths[0])} source lengths and {len(lengths[1])} target lengths; expected equally many"
        )
    keys = {"source": lengths[0], "target": lengths[1]}.get(limited, lengths[0] + lengths[1])
    order = np.arange(len(keys)) if epoch is None else numpy_generator(seed, "pairs", epoch).permutation(len(keys))
    order = order[np.argsort(keys[order], kind="stable")]
    sizes = ((lengths[0][order] + 1).tolist(), (lengths[1][order] + 1).tolist())
    return shuffle_batches(np.split(order, _cuts(zip(*sizes, strict=True), tokens, limited)), seed, epoch)


def _cuts(sizes: Iterable[tuple[int, int]], tokens: int, limited: LimitedSide) -> list[int]:
    """Return where to split the pairs into batches; the longest pair of a batch need not be its last."""
    cuts, start, longest = list[int](), 0, (0, 0)
    for index, size in enumerate(sizes):
        grown = max(longest[0], size[0]), max(longest[1], size[1])
        if index > start and (index + 1 - start) * _limited_length(grown, limited) > tokens:
            cuts.append(index)
            start, grown = index, size
        longest = grown
    return cuts


def _limited_length(longest: tuple[int, int], limited: LimitedSide) -> int:
    source, target = longest
    return {"source": source, "target": target, "both": max(longest), "sum": source + target}[limited]


def make_pair_batch(
    pairs: Pairs | Sequence[tuple[NDArray[Any], NDArray[Any]]],
    indices: Sequence[int] | Indices,
    dropout: SubwordDropout | None = None,
    epoch: int = 0,
) -> PairBatch:
    """Build the batch of the pairs of these indices.

    In training, dropout segments both sides anew as a function of the epoch; the batch may then exceed its limit.
    """
    examples = tuple(int(index) for index in indices)
    rows = [pairs[index] for index in examples]
    if dropout is not None:
        rows = [dropout.apply(*row, epoch=epoch, index=index) for index, row in zip(examples, rows, strict=True)]
    source, source_lengths = pad([np.concatenate((row, [EOS])) for row, _ in rows])
    inputs, lengths = pad([np.concatenate(([BOS], row)) for _, row in rows])
    targets, _ = pad([np.concatenate((row, [EOS])) for _, row in rows])
    rare = pairs.rare if isinstance(pairs, Pairs) else None
    words = [] if rare is None else [_rare_words(*side, examples) for side in zip(rare, (source, targets), strict=True)]
    return PairBatch(source, source_lengths, inputs, targets, lengths, examples, *words)


def _rare_words(rare: RareWords, ids: Int64[Tensor, "batch time"], examples: Iterable[int]) -> UnknownWords:
    return unknown_words([rare.positions(index) for index in examples], ids.shape[1], rare.characters)

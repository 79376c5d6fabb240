"""Batches of pairs, planned as those of single sequences are: pure functions of (seed, epoch)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from structattn.data.batching.sequences import Indices, check_positive, shuffled
from structattn.data.batching.spelled_words import Spelt, spelt
from structattn.data.batching.subword_dropout import SubwordDropout
from structattn.data.folders.pairs import Pairs
from structattn.data.folders.rare_words import RareWords
from structattn.support.seeds import numpy_generator
from structattn.support.special_tokens import BOS, EOS, PAD

Limited = Literal["source", "target", "both", "sum"]


@dataclass(frozen=True)
class PairBatch:
    """A batch for an encoder-decoder: it reads ``source``, and at step t ``inputs[:, t]`` to predict ``targets[:, t]``.

    Args:
        source: ``s1 .. sn <eos>``; then ``<pad>``.
        source_lengths: n + 1 for each row.
        inputs: ``<bos> t1 .. tm``; then ``<pad>``.
        targets: ``t1 .. tm <eos>``; then ``<pad>``.
        lengths: m + 1 for each row.
        examples: the index of each row's pair.
        source_words: the words of ``source`` that are ``<unk>`` and have a spelling, where the data keep spellings.
        target_words: those of ``targets``.
    """

    source: Int64[Tensor, "batch source"]
    source_lengths: Int64[Tensor, " batch"]
    inputs: Int64[Tensor, "batch time"]
    targets: Int64[Tensor, "batch time"]
    lengths: Int64[Tensor, " batch"]
    examples: tuple[int, ...]
    source_words: Spelt | None = None
    target_words: Spelt | None = None

    def to(self, device: torch.device | str) -> "PairBatch":
        """The same batch on another device."""
        names = ("source", "source_lengths", "inputs", "targets", "lengths")
        return PairBatch(
            **{name: getattr(self, name).to(device) for name in names},
            examples=self.examples,
            source_words=None if self.source_words is None else self.source_words.to(device),
            target_words=None if self.target_words is None else self.target_words.to(device),
        )


def pair_token_batches(
    source_lengths: Sequence[int] | Indices,
    target_lengths: Sequence[int] | Indices,
    tokens: int,
    seed: int,
    epoch: int | None,
    *,
    limited: Limited = "both",
) -> list[Indices]:
    """Batches of pairs of similar lengths whose padded size is at most ``tokens``.

    The padded size of a side is rows × (its longest length + 1). A pair that is too long on its own forms a batch
    alone, the only way in which the limit is ever passed. Pairs are sorted by the length of the side that is limited,
    by the sum of both where both are (DuSell & Chiang 2024, appendix G); equal ones are dealt anew each epoch, and the
    order of the batches is shuffled. Without an epoch they come by rising length, in file order among equals.

    Args:
        source_lengths: the number of source tokens of each pair.
        target_lengths: of target tokens.
        tokens: the largest padded size of a batch, the extra position for ``<bos>`` or ``<eos>`` counted.
        seed: decides the shuffling together with the epoch.
        epoch: from 0; ``None`` to shuffle nothing.
        limited: what must not pass the limit: the ``source`` side, the ``target`` side, ``both`` sides each, or the
            ``sum`` of both.

    Raises:
        ValueError: tokens is below 1, the lengths are not of equal number, or ``limited`` is something else.
    """
    check_positive(tokens=tokens)
    if limited not in get_args(Limited):
        raise ValueError(f"limited is {limited!r}; expected one of {list(get_args(Limited))}")
    lengths = np.asarray(source_lengths, dtype=np.int64), np.asarray(target_lengths, dtype=np.int64)
    if lengths[0].shape != lengths[1].shape:
        raise ValueError(f"{len(lengths[0])} source lengths and {len(lengths[1])} target lengths")
    keys = {"source": lengths[0], "target": lengths[1]}.get(limited, lengths[0] + lengths[1])
    order = np.arange(len(keys)) if epoch is None else numpy_generator(seed, "pairs", epoch).permutation(len(keys))
    order = order[np.argsort(keys[order], kind="stable")]
    sizes = ((lengths[0][order] + 1).tolist(), (lengths[1][order] + 1).tolist())
    return shuffled(np.split(order, _cuts(zip(*sizes, strict=True), tokens, limited)), seed, epoch)


def _cuts(sizes: Iterable[tuple[int, int]], tokens: int, limited: Limited) -> list[int]:
    """Where to cut so that no piece is larger than the limit; the longest of a piece need not be its last."""
    cuts, start, longest = list[int](), 0, (0, 0)
    for index, size in enumerate(sizes):
        grown = max(longest[0], size[0]), max(longest[1], size[1])
        if index > start and (index + 1 - start) * _counted(grown, limited) > tokens:
            cuts.append(index)
            start, grown = index, size
        longest = grown
    return cuts


def _counted(longest: tuple[int, int], limited: Limited) -> int:
    source, target = longest
    return {"source": source, "target": target, "both": max(longest), "sum": source + target}[limited]


def make_pair_batch(
    pairs: Pairs | Sequence[tuple[NDArray[Any], NDArray[Any]]],
    indices: Sequence[int] | Indices,
    dropout: SubwordDropout | None = None,
    epoch: int = 0,
) -> PairBatch:
    """The pairs of these indices.

    Args:
        pairs: all pairs.
        indices: which.
        dropout: cuts both sides anew, for training. Lengths change with it, so a batch may then be larger than planned.
        epoch: from 0; matters to ``dropout`` alone.
    """
    examples = tuple(int(index) for index in indices)
    rows = [pairs[index] for index in examples]
    if dropout is not None:
        rows = [dropout.apply(*row, epoch=epoch, index=index) for index, row in zip(examples, rows, strict=True)]
    source, source_lengths = _padded([np.concatenate((row, [EOS])) for row, _ in rows])
    inputs, lengths = _padded([np.concatenate(([BOS], row)) for _, row in rows])
    targets, _ = _padded([np.concatenate((row, [EOS])) for _, row in rows])
    rare = pairs.rare if isinstance(pairs, Pairs) else None
    words = (
        []
        if rare is None
        else [_spelt(side, examples, width.shape[1]) for side, width in zip(rare, (source, targets), strict=True)]
    )
    return PairBatch(source, source_lengths, inputs, targets, lengths, examples, *words)


def _spelt(rare: RareWords, examples: Iterable[int], width: int) -> Spelt:
    return spelt([rare.placed(index) for index in examples], width, rare.spelling)


def _padded(rows: list[NDArray[Any]]) -> tuple[Int64[Tensor, "batch time"], Int64[Tensor, " batch"]]:
    """Rows with ``<pad>`` after the shorter ones, and their lengths."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    padded = np.full((len(rows), int(lengths.max(initial=0))), PAD, dtype=np.int64)
    for row, values in enumerate(rows):
        padded[row, : len(values)] = values
    return torch.from_numpy(padded), torch.from_numpy(lengths)

"""Batches as pure functions of (seed, epoch), so that a position in an epoch is all that resuming needs.

The first three functions give the plan of an epoch: a list of batches, each an array of indices of examples (of
windows, for a stream). Every index occurs in exactly one batch. Without an epoch nothing is shuffled; that is the
order for evaluation. The last two functions turn one item of a plan into tensors.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from structattn.data.folders.prepared import Sequences
from structattn.support.seeds import numpy_generator
from structattn.support.special_tokens import BOS, EOS, PAD

Indices = Int64[np.ndarray, " _"]  # batches differ in their number of rows


@dataclass(frozen=True)
class Batch:
    """A batch for a language model: at step t it reads ``inputs[:, t]`` and predicts ``targets[:, t]``.

    Args:
        inputs: ``<bos> w1 .. wn``, or a window of a stream; then ``<pad>``.
        targets: ``w1 .. wn <eos>``, or the same window one symbol later; then ``<pad>``.
        lengths: how many positions of each row count; n + 1 for a sequence of n tokens.
        examples: the index of each row's sequence or window.
    """

    inputs: Int64[Tensor, "batch time"]
    targets: Int64[Tensor, "batch time"]
    lengths: Int64[Tensor, " batch"]
    examples: tuple[int, ...]

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return Batch(self.inputs.to(device), self.targets.to(device), self.lengths.to(device), self.examples)


def sequence_batches(lengths: Sequence[int] | Indices, size: int, seed: int, epoch: int | None) -> list[Indices]:
    """Batches of ``size`` sequences of one length; the last of each length may be smaller.

    Which sequences share a batch never changes: neighbours in file order among those of their length. Only the order
    of the batches is shuffled. Without an epoch they come by rising length.

    Args:
        lengths: the number of tokens of each sequence.
        size: sequences in a batch.
        seed: decides the shuffling together with the epoch.
        epoch: from 0; ``None`` to shuffle nothing.
    """
    check_positive(size=size)
    values = np.asarray(lengths, dtype=np.int64)
    by_length = np.argsort(values, kind="stable")
    starts_of_lengths = np.flatnonzero(np.diff(values[by_length])) + 1
    batches = [
        group[start : start + size]
        for group in np.split(by_length, starts_of_lengths)
        for start in range(0, len(group), size)
    ]
    return shuffled(batches, seed, epoch)


def token_batches(lengths: Sequence[int] | Indices, tokens: int, seed: int, epoch: int | None) -> list[Indices]:
    """Batches of sequences of similar length whose padded size, rows × (longest length + 1), is at most ``tokens``.

    A sequence that is too long on its own forms a batch alone, the only way in which the limit is ever passed.
    Sequences of equal length are dealt anew each epoch, and the order of the batches is shuffled. Without an epoch
    they come by rising length, and in file order among equals.

    Args:
        lengths: the number of tokens of each sequence.
        tokens: the largest padded size of a batch, the extra position for ``<bos>`` or ``<eos>`` counted.
        seed: decides the shuffling together with the epoch.
        epoch: from 0; ``None`` to shuffle nothing.
    """
    check_positive(tokens=tokens)
    values = np.asarray(lengths, dtype=np.int64)
    order = np.arange(len(values))
    if epoch is not None:
        order = numpy_generator(seed, "sequences", epoch).permutation(len(values))
    order = order[np.argsort(values[order], kind="stable")]
    cuts = _token_cuts((values[order] + 1).tolist(), tokens)
    return shuffled([batch for batch in np.split(order, cuts) if len(batch)], seed, epoch)


def _token_cuts(sizes: Iterable[int], tokens: int) -> list[int]:
    """Where to cut rising sizes so that in each piece rows × the last size is at most ``tokens``."""
    cuts, start = [], 0
    for index, size in enumerate(sizes):
        if index > start and (index + 1 - start) * size > tokens:
            cuts.append(index)
            start = index
    return cuts


def stream_batches(target_count: int, length: int, size: int, seed: int, epoch: int | None) -> list[Indices]:
    """Batches of ``size`` windows of a stream; window i predicts the targets i·length to (i+1)·length - 1.

    The last window may be shorter than ``length``, the last batch smaller than ``size``. Windows are shuffled.

    Args:
        target_count: ``Sequences.target_count``: the tokens and one ``<eos>`` for each line.
        length: targets in a window.
        size: windows in a batch.
        seed: decides the shuffling together with the epoch.
        epoch: from 0; ``None`` to shuffle nothing.
    """
    check_positive(length=length, size=size)
    count = -(-target_count // length)
    windows = np.arange(count) if epoch is None else numpy_generator(seed, "windows", epoch).permutation(count)
    return [windows[start : start + size] for start in range(0, count, size)]


def shuffled(batches: list[Indices], seed: int, epoch: int | None) -> list[Indices]:
    """Batches in an order that is a pure function of (seed, epoch), empty ones left out; unchanged without an epoch."""
    batches = [batch for batch in batches if len(batch)]
    if epoch is None:
        return batches
    return [batches[index] for index in numpy_generator(seed, "batches", epoch).permutation(len(batches))]


def check_positive(**sizes: int) -> None:
    """Check that every number is at least 1.

    Raises:
        ValueError: one is not.
    """
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; expected at least 1")


def make_batch(sequences: Sequences | Sequence[NDArray[Any]], indices: Sequence[int] | Indices) -> Batch:
    """The sequences of these indices, with ``<bos>`` before the inputs and ``<eos>`` after the targets."""
    rows = [np.asarray(sequences[int(index)]) for index in indices]
    inputs = [np.concatenate(([BOS], row)) for row in rows]
    targets = [np.concatenate((row, [EOS])) for row in rows]
    return _padded(inputs, targets, indices)


def make_stream_batch(sequences: Sequences, windows: Sequence[int] | Indices, length: int) -> Batch:
    """Windows of ``<eos> line 1 <eos> line 2 <eos> ...``; the leading ``<eos>`` is an input and never a target.

    Args:
        sequences: the lines.
        windows: numbers of windows, from ``stream_batches``.
        length: the same as given there.
    """
    pieces = [sequences.stream(int(window) * length, (int(window) + 1) * length + 1) for window in windows]
    return _padded([piece[:-1] for piece in pieces], [piece[1:] for piece in pieces], windows)


def _padded(inputs: list[NDArray[Any]], targets: list[NDArray[Any]], examples: Sequence[int] | Indices) -> Batch:
    lengths = np.array([len(row) for row in inputs], dtype=np.int64)
    shape = (len(inputs), int(lengths.max(initial=0)))
    padded_inputs, padded_targets = np.full(shape, PAD, dtype=np.int64), np.full(shape, PAD, dtype=np.int64)
    for row, length in enumerate(lengths):
        padded_inputs[row, :length], padded_targets[row, :length] = inputs[row], targets[row]
    return Batch(
        inputs=torch.from_numpy(padded_inputs),
        targets=torch.from_numpy(padded_targets),
        lengths=torch.from_numpy(lengths),
        examples=tuple(int(index) for index in examples),
    )

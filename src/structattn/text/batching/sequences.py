"""Batches of sequences, as pure functions of (seed, epoch): to resume, a position in an epoch suffices.

``sequence_batches``, ``token_batches`` and ``stream_batches`` plan an epoch: a list of batches, each an array of the
indices of examples (for a stream, of windows). Every index occurs in exactly one batch. Without an epoch nothing
is shuffled, as for evaluation. ``make_batch`` and ``make_stream_batch`` build the tensors of one batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from structattn.support.seeds import numpy_generator
from structattn.support.shapes import Int64
from structattn.support.sizes import require_positive
from structattn.support.special_tokens import BOS, EOS, PAD
from structattn.text.folders.sequences import Sequences

Indices = Int64[np.ndarray, " _"]  # batches differ in their number of rows


@dataclass(frozen=True)
class Batch:
    """A batch for a language model, which predicts ``targets[:, t]`` from ``inputs[:, : t + 1]``.

    Args:
        inputs: ``<bos> w1 .. wn``, or a window of a stream, then ``<pad>``.
        targets: ``w1 .. wn <eos>``, or the same window one token later, then ``<pad>``.
        lengths: the number of positions of each row without padding; n + 1 for a sequence of n tokens.
        examples: the index of the sequence or window of each row.
    """

    inputs: Int64[Tensor, "batch time"]
    targets: Int64[Tensor, "batch time"]
    lengths: Int64[Tensor, " batch"]
    examples: tuple[int, ...]

    def to(self, device: torch.device | str) -> "Batch":
        """Move the tensors to a device."""
        return Batch(self.inputs.to(device), self.targets.to(device), self.lengths.to(device), self.examples)


def sequence_batches(lengths: Sequence[int] | Indices, size: int, seed: int, epoch: int | None) -> list[Indices]:
    """Plan batches of ``size`` sequences of equal length; the last batch of each length may be smaller.

    A batch always holds the same sequences: neighbours in file order among those of their length. Only the order of
    the batches is shuffled. Without an epoch they are in ascending order of length.
    """
    require_positive(size=size)
    values = np.asarray(lengths, dtype=np.int64)
    by_length = np.argsort(values, kind="stable")
    starts_of_lengths = np.flatnonzero(np.diff(values[by_length])) + 1
    batches = [
        group[start : start + size]
        for group in np.split(by_length, starts_of_lengths)
        for start in range(0, len(group), size)
    ]
    return shuffle_batches(batches, seed, epoch)


def token_batches(lengths: Sequence[int] | Indices, tokens: int, seed: int, epoch: int | None) -> list[Indices]:
    """Plan batches of sequences of similar length with padded size, rows × (longest length + 1), of at most ``tokens``.

    A single sequence above the limit forms a batch of its own; no other batch exceeds it. Sequences of equal
    length are shuffled anew in each epoch, and so is the order of the batches. Without an epoch batches are in
    ascending order of length, ties in file order.

    Args:
        lengths: the number of tokens of each sequence.
        tokens: the maximum padded size of a batch, including the position of ``<bos>`` or ``<eos>``.
        seed: determines the order together with the epoch.
        epoch: the epoch, from 0; ``None`` for no shuffling.
    """
    require_positive(tokens=tokens)
    values = np.asarray(lengths, dtype=np.int64)
    order = np.arange(len(values))
    if epoch is not None:
        order = numpy_generator(seed, "sequences", epoch).permutation(len(values))
    order = order[np.argsort(values[order], kind="stable")]
    return shuffle_batches(np.split(order, _token_cuts((values[order] + 1).tolist(), tokens)), seed, epoch)


def _token_cuts(sizes: Iterable[int], tokens: int) -> list[int]:
    """Return where to split ascending sizes so that rows × last size of each part is at most ``tokens``."""
    cuts, start = [], 0
    for index, size in enumerate(sizes):
        if index > start and (index + 1 - start) * size > tokens:
            cuts.append(index)
            start = index
    return cuts


def stream_batches(num_targets: int, length: int, size: int, seed: int, epoch: int | None) -> list[Indices]:
    """Plan batches of ``size`` windows of a stream; window i predicts the targets i·length to (i+1)·length - 1.

    The last window may be shorter than ``length``, the last batch smaller than ``size``. Windows are shuffled.

    Args:
        num_targets: ``Sequences.num_targets``: the tokens and one ``<eos>`` for each line.
        length: the number of targets in a window.
        size: the number of windows in a batch.
        seed: determines the order together with the epoch.
        epoch: the epoch, from 0; ``None`` for no shuffling.
    """
    require_positive(length=length, size=size)
    count = -(-num_targets // length)
    windows = np.arange(count) if epoch is None else numpy_generator(seed, "windows", epoch).permutation(count)
    return [windows[start : start + size] for start in range(0, count, size)]


def shuffle_batches(batches: list[Indices], seed: int, epoch: int | None) -> list[Indices]:
    """Drop empty batches, and shuffle the others as a pure function of (seed, epoch), if there is an epoch."""
    batches = [batch for batch in batches if len(batch)]
    if epoch is None:
        return batches
    return [batches[index] for index in numpy_generator(seed, "batches", epoch).permutation(len(batches))]


def make_batch(
    sequences: Sequences | Sequence[NDArray[Any]], indices: Sequence[int] | Indices, start: int = BOS
) -> Batch:
    """Build the batch of the sequences of these indices, with ``start`` before inputs and ``<eos>`` after targets."""
    rows = [np.asarray(sequences[int(index)]) for index in indices]
    inputs = [np.concatenate(([start], row)) for row in rows]
    targets = [np.concatenate((row, [EOS])) for row in rows]
    padded, lengths = pad(inputs)
    return Batch(padded, pad(targets)[0], lengths, tuple(int(index) for index in indices))


def make_stream_batch(sequences: Sequences, windows: Sequence[int] | Indices, length: int) -> Batch:
    """Build the batch of windows of ``<eos> line 1 <eos> line 2 <eos> ...``.

    The first ``<eos>`` is an input and never a target.
    """
    pieces = [sequences.stream(int(window) * length, (int(window) + 1) * length + 1) for window in windows]
    inputs, lengths = pad([piece[:-1] for piece in pieces])
    return Batch(inputs, pad([piece[1:] for piece in pieces])[0], lengths, tuple(int(window) for window in windows))


def pad(rows: Sequence[NDArray[Any]]) -> tuple[Int64[Tensor, "batch time"], Int64[Tensor, " batch"]]:
    """Stack rows, with ``<pad>`` after the shorter ones; return them and their lengths."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    padded = np.full((len(rows), int(lengths.max(initial=0))), PAD, dtype=np.int64)
    for row, values in enumerate(rows):
        padded[row, : len(values)] = values
    return torch.from_numpy(padded), torch.from_numpy(lengths)

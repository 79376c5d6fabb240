"""Memory-mapped sequences of a prepared folder."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from structattn.support.errors import DataError
from structattn.support.reading import open_regular, read_errors
from structattn.support.shapes import Float64, Int32, Int64
from structattn.support.special_tokens import EOS
from structattn.text.folders.header import LOG_PROBABILITIES, OFFSETS, TOKENS, StoredArray


@dataclass(frozen=True)
class Sequences:
    """The sequences of one split; ``sequences[i]`` is the i-th as int32 ids, without ``<bos>`` and ``<eos>``.

    Args:
        tokens: the concatenation of all sequences.
        offsets: the start of each sequence, and the end of the last one.
        log_probabilities: log p(w | length of w), for strings drawn from a known distribution.
    """

    tokens: Int32[np.ndarray, " tokens"]
    offsets: Int64[np.ndarray, " offsets"]
    log_probabilities: Float64[np.ndarray, " sequences"] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Int32[np.ndarray, " length"]:
        if not 0 <= index < len(self.offsets) - 1:
            raise IndexError(f"sequence {index} of {len(self)}")
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    @cached_property
    def lengths(self) -> Int64[np.ndarray, " sequences"]:
        """The number of tokens of each sequence."""
        return np.diff(self.offsets)

    @property
    def num_tokens(self) -> int:
        """The number of tokens, not counting ``<eos>``."""
        return len(self.tokens)

    @property
    def num_targets(self) -> int:
        """The number of tokens that a language model predicts: all tokens, and ``<eos>`` for each sequence."""
        return len(self.tokens) + len(self)

    @cached_property
    def _ends(self) -> Int64[np.ndarray, " offsets"]:
        return self.offsets + np.arange(len(self.offsets))

    def stream(self, start: int, stop: int) -> Int32[np.ndarray, " symbols"]:
        """Return positions ``start`` to ``stop`` of ``<eos> sequence 0 <eos> sequence 1 <eos> ...``.

        The stream has ``num_targets + 1`` positions. Cost: proportional to ``stop - start``.
        """
        start, stop, _ = slice(start, stop).indices(self.num_targets + 1)
        first, last = np.searchsorted(self._ends, (start, max(start, stop)))
        window = np.full(max(stop - start, 0), EOS, dtype=np.int32)
        is_token = np.ones(len(window), dtype=bool)
        is_token[self._ends[first:last] - start] = False
        window[is_token] = self.tokens[start - first : max(start, stop) - last]
        return window


def map_array(folder: Path, array: StoredArray, count: int) -> NDArray[Any]:
    """Memory-map a stored array of ``count`` elements.

    Raises:
        DataError: the file cannot be read, or has another size.
    """
    path, expected = folder / array.name, count * array.dtype.itemsize
    with read_errors(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != expected:
            raise DataError(path, f"has {size} bytes; expected {expected} from its header")
        if count == 0:
            return np.empty(0, array.dtype)  # an empty file cannot be mapped
        return np.asarray(np.memmap(file, array.dtype, mode="r"))


def map_sequences(
    folder: Path, count: int, tokens: int, log_probabilities: Float64[np.ndarray, " sequences"] | None = None
) -> Sequences:
    """Memory-map the sequences of a folder with ``tokens.bin`` and ``offsets.bin``.

    Raises:
        DataError: the files are inconsistent with each other or with these counts.
    """
    sequences = Sequences(map_array(folder, TOKENS, tokens), map_array(folder, OFFSETS, count + 1), log_probabilities)
    offsets = sequences.offsets
    if offsets[0] != 0 or offsets[-1] != sequences.num_tokens or bool((sequences.lengths < 0).any()):
        raise DataError(
            folder / OFFSETS.name, f"damaged: expected offsets that increase from 0 to {sequences.num_tokens}"
        )
    if log_probabilities is not None and not bool((log_probabilities <= 0).all()):
        raise DataError(folder / LOG_PROBABILITIES.name, "damaged: expected log-probabilities of at most 0")
    return sequences

"""The arrays of a prepared folder: memory-mapped sequences."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int32, Int64
from numpy.typing import NDArray

from structattn.data.folders.header import OFFSETS, TOKENS, StoredArray
from structattn.support.errors import DataError
from structattn.support.special_tokens import EOS


@dataclass(frozen=True)
class Sequences:
    """The sequences of one split, on disk; ``sequences[i]`` is the i-th as int32 ids, without ``<bos>`` and ``<eos>``.

    Args:
        tokens: all sequences one after the other.
        offsets: where each begins, and where the last one ends.
        log_probabilities: log p(w | length of w), for strings drawn from a known distribution.
    """

    tokens: Int32[np.ndarray, " tokens"]
    offsets: Int64[np.ndarray, " offsets"]
    log_probabilities: Float64[np.ndarray, " sequences"] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Int32[np.ndarray, " length"]:
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    @cached_property
    def lengths(self) -> Int64[np.ndarray, " sequences"]:
        """The number of tokens of each sequence."""
        return np.diff(self.offsets)

    @property
    def token_count(self) -> int:
        """The number of tokens, ``<eos>`` not counted."""
        return len(self.tokens)

    @property
    def target_count(self) -> int:
        """The number of symbols that a language model predicts: the tokens, and an ``<eos>`` for each sequence."""
        return len(self.tokens) + len(self)

    @cached_property
    def _ends(self) -> Int64[np.ndarray, " offsets"]:
        return self.offsets + np.arange(len(self.offsets))

    def stream(self, start: int, stop: int) -> Int32[np.ndarray, " symbols"]:
        """Positions ``start`` to ``stop`` of ``<eos> sequence 0 <eos> sequence 1 <eos> ...``.

        The whole has ``target_count + 1`` positions. Cost: proportional to the positions asked for.
        """
        start, stop, _ = slice(start, stop).indices(self.target_count + 1)
        first, last = np.searchsorted(self._ends, (start, max(start, stop)))
        window = np.full(max(stop - start, 0), EOS, dtype=np.int32)
        is_token = np.ones(len(window), dtype=bool)
        is_token[self._ends[first:last] - start] = False
        window[is_token] = self.tokens[start - first : max(start, stop) - last]
        return window


def mapped_array(folder: Path, array: StoredArray, count: int) -> NDArray[Any]:
    """A stored array of ``count`` elements, memory-mapped.

    Raises:
        DataError: the file cannot be read, or is of another size.
    """
    path, promised = folder / array.name, count * array.dtype.itemsize
    try:
        size = path.stat().st_size
        if size != promised:
            raise DataError(path, f"has {size} bytes where its header promises {promised}")
        if count == 0:
            return np.empty(0, array.dtype)  # an empty file cannot be mapped
        return np.asarray(np.memmap(path, array.dtype, mode="r"))
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None


def mapped_sequences(
    folder: Path, count: int, tokens: int, log_probabilities: Float64[np.ndarray, " sequences"] | None = None
) -> Sequences:
    """The sequences of a folder that holds ``tokens.bin`` and ``offsets.bin``.

    Raises:
        DataError: the files do not fit together, or not to these counts.
    """
    sequences = Sequences(
        mapped_array(folder, TOKENS, tokens), mapped_array(folder, OFFSETS, count + 1), log_probabilities
    )
    _check_offsets(sequences, folder / OFFSETS.name)
    return sequences


def _check_offsets(sequences: Sequences, path: Path) -> None:
    offsets = sequences.offsets
    if offsets[0] != 0 or offsets[-1] != sequences.token_count or bool((sequences.lengths < 0).any()):
        raise DataError(path, f"damaged: offsets should rise from 0 to {sequences.token_count}")

"""The words of parallel text that are ``<unk>`` in it: numbered while it is written, and found again.

rare_words.txt          one word a line, those of the target; source_rare_words.txt where the sides have each their own
SPLIT/rare.bin          int32: for each <unk> of the target, in order, the line of its word, from 1; 0 where the text
                        itself says <unk>, so that nobody knows the spelling
SPLIT/source/rare.bin   the same for the source
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64
from numpy.typing import NDArray

from structattn.data.folders.header import HEADER_NAME, RARE, RARE_WORDS_NAME, Header
from structattn.data.folders.sequences import Sequences, mapped_array
from structattn.data.parallel.parallel_side import SOURCE_PREFIX, SideName, Sides
from structattn.data.tokenization.spelling import Speller
from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL
from structattn.support.errors import DataError
from structattn.support.files import sha256_of_file
from structattn.support.special_tokens import UNK


class RareWordCollector:
    """Numbers words as they come, from 1; memory holds each different one."""

    def __init__(self) -> None:
        self._numbers = {UNKNOWN_SYMBOL: 0}

    def numbers(self, words: Sequence[str], ids: Sequence[int]) -> list[int]:
        """For each ``<unk>`` among the ids of a line's words the number of its word; 0 for the word ``<unk>``."""
        unknown = (word for word, number in zip(words, ids, strict=True) if number == UNK)
        return [self._numbers.setdefault(word, len(self._numbers)) for word in unknown]

    def save(self, folder: Path, prefix: str) -> None:
        """Write the words, one a line: no word holds a line feed."""
        words = list(self._numbers)[1:]
        (folder / (prefix + RARE_WORDS_NAME)).write_bytes("".join(word + "\n" for word in words).encode())


@dataclass(frozen=True)
class RareWords:
    """Which word each ``<unk>`` of one side of a split is; ``rare[i]`` are the numbers of those of sequence i.

    Args:
        sequences: the side.
        numbers: of all its ``<unk>``, from 1; 0 where the text itself says ``<unk>``.
        words: word n is ``words[n - 1]``.
        speller: spells them.
    """

    sequences: Sequences
    numbers: Int32[np.ndarray, " unknown"]
    words: tuple[str, ...]
    speller: Speller

    def __getitem__(self, index: int) -> Int32[np.ndarray, " unknown_here"]:
        return self.numbers[self._starts[index] : self._starts[index + 1]]

    def spelling(self, number: int) -> list[int]:
        """How word ``number`` is spelt."""
        return self.speller.spell(self.words[number - 1])

    def placed(self, index: int) -> list[tuple[int, int]]:
        """Place and number of each ``<unk>`` of a sequence whose spelling is known."""
        places = np.flatnonzero(self.sequences[index] == UNK)
        return [(int(place), int(n)) for place, n in zip(places, self[index], strict=True) if n]

    @cached_property
    def _starts(self) -> Int64[np.ndarray, " offsets"]:
        return np.searchsorted(np.flatnonzero(self.sequences.tokens == UNK), self.sequences.offsets)


def rare_words_of(
    folder: Path, header: Header, sides: Sides, split: str, sequences: tuple[Sequences, Sequences]
) -> tuple[RareWords, RareWords] | None:
    """The rare words of both sides of a split, memory-mapped; None where symbols are not words, or nothing was kept.

    Args:
        folder: the prepared folder.
        header: its header.
        sides: its languages.
        split: one of its splits.
        sequences: source and target of that split.

    Raises:
        DataError: a file is missing or damaged, or not the one that the header describes.
    """
    spellers = sides.source.speller, sides.target.speller
    if spellers[0] is None or spellers[1] is None:
        return None
    target = _loaded(folder, header, RARE_WORDS_NAME)
    source = target if header.tokenizer["joint"] else _loaded(folder, header, SOURCE_PREFIX + RARE_WORDS_NAME)
    return (
        _mapped(
            folder / split / "source", sequences[0], _promised(folder, header, split, "source"), source, spellers[0]
        ),
        _mapped(folder / split, sequences[1], _promised(folder, header, split, "target"), target, spellers[1]),
    )


def _loaded(folder: Path, header: Header, name: str) -> tuple[str, ...]:
    path, expected = folder / name, header.files.get(name)
    try:
        found = sha256_of_file(path)
        if found != expected:
            raise DataError(path, f"changed since it was written: its SHA-256 was {expected} and is {found}")
        return tuple(path.read_bytes().decode().split("\n")[:-1])
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None


def _promised(folder: Path, header: Header, split: str, side: SideName) -> int:
    """How many ``<unk>`` the header promises."""
    count: Any = header.extra.get("unknown_tokens")
    for key in (split, side):
        count = count.get(key) if isinstance(count, dict) else None
    if not isinstance(count, int) or count < 0:
        raise DataError(folder / HEADER_NAME, f"does not say how many {side} tokens of {split!r} are unknown")
    return count


def _mapped(folder: Path, sequences: Sequences, count: int, words: tuple[str, ...], speller: Speller) -> RareWords:
    numbers: NDArray[Any] = mapped_array(folder, RARE, count)
    if count and not 0 <= int(numbers.min()) <= int(numbers.max()) <= len(words):
        found = f"{int(numbers.min())} to {int(numbers.max())}"
        raise DataError(folder / RARE.name, f"damaged: names words {found}, of which there are {len(words)}")
    return RareWords(sequences, numbers, words, speller)

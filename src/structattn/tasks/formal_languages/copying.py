"""The seven languages of DuSell & Chiang (2023, section 5), most of them not context-free.

A string is determined by its length and by a word w over the first ``letters`` symbols of the alphabet; all strings of
a length are equally likely.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from structattn.support.progress import Advance, show_nothing
from structattn.tasks.formal_languages.length_table import FloatArray, IndexArray
from structattn.tasks.formal_languages.strings import require_symbols

Strings = NDArray[np.int64]  # (N, length)
BITS = ("0", "1")
MARK = 2  # the index of "#", which follows the letters


@dataclass(frozen=True)
class CopyingLanguage:
    """A language with one string of length ``times`` n + ``marks`` for each word of n letters.

    All strings of a length are equally likely. P(length) is defined as 1 for each length that has strings, so only
    conditional probabilities are meaningful.

    Args:
        alphabet: the symbols, letters first.
        letters: the number of distinct letters of a word; 0 if only n matters.
        times: the number of symbols per letter of the word.
        marks: the number of further symbols.
        build: maps words (N, n) and n to strings (N, length).
    """

    name: str
    description: str
    alphabet: tuple[str, ...]
    letters: int
    times: int
    marks: int
    build: Callable[[Strings, int], Strings]
    variant = "faithful"  # the only one

    def size(self, length: int) -> int | None:
        """Return n for strings of a length, or None if there are none."""
        size, rest = divmod(length - self.marks, self.times)
        return size if size >= 0 and rest == 0 else None

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """Return the lengths from ``low`` to ``high`` inclusive that have strings.

        Raises:
            ValueError: not 0 <= low <= high.
        """
        if not 0 <= low <= high:
            raise ValueError(f"lengths {low} to {high}; expected 0 <= low <= high")
        return [length for length in range(low, high + 1) if self.size(length) is not None]

    def log_length_probability(self, length: int) -> float:
        """Return 0 if there are strings of that length, otherwise -inf.

        Raises:
            ValueError: ``length`` is negative.
        """
        if length < 0:
            raise ValueError(f"length is {length}; expected at least 0")
        return -math.inf if self.size(length) is None else 0.0

    def log_count(self, length: int) -> float:
        """Return the logarithm of the number of strings of a length."""
        size = self.size(length)
        return -math.inf if size is None else size * math.log(max(self.letters, 1))

    def sample_each(self, lengths: ArrayLike, generator: Generator) -> list[IndexArray]:
        """Sample one string of each length, (N,), from P(string | length).

        Raises:
            ValueError: there is no string of one of the lengths.
        """
        wanted = np.asarray(lengths, dtype=np.int64)
        strings: list[IndexArray] = [wanted[:0]] * wanted.size
        for length in np.unique(wanted):
            size = self.size(int(length))
            if size is None:
                raise ValueError(f"{self.name} has no string of length {length}")
            indices = np.flatnonzero(wanted == length)
            words = generator.integers(0, max(self.letters, 1), size=(indices.size, size))
            for index, string in zip(indices, self.build(words, size), strict=True):
                strings[index] = string
        return strings

    def log_probabilities(self, strings: Sequence[NDArray[np.integer]], advance: Advance = show_nothing) -> FloatArray:
        """Return log P(string | length), (N,) in nats: minus ``log_count``; -inf outside the language.

        Raises:
            ValueError: an index is outside the alphabet.
        """
        require_symbols(strings, len(self.alphabet))
        log_probs = [-self.log_count(len(string)) if self.accepts(string) else -math.inf for string in strings]
        advance(len(strings))
        return np.array(log_probs, dtype=np.float64)

    def accepts(self, string: NDArray[np.integer]) -> bool:
        """Return whether a string is in the language: whether it equals the one that its first n symbols determine."""
        size = self.size(len(string))
        if size is None:
            return False
        word = np.asarray(string[:size], dtype=np.int64)[None]
        of_letters = not self.letters or (word < self.letters).all()
        return bool(of_letters and (self.build(word, size)[0] == string).all())


def _joined(*parts: Strings) -> Strings:
    return np.concatenate(parts, axis=1)


def _marks(words: Strings, count: int = 1) -> Strings:
    return np.full((len(words), count), MARK, dtype=np.int64)


COPYING_LANGUAGES: Mapping[str, CopyingLanguage] = MappingProxyType(
    {
        language.name: language
        for language in (
            CopyingLanguage(
                "count-3", "a^n b^n c^n: not context-free", ("a", "b", "c"), 0, 3, 0,
                lambda words, n: np.tile(np.repeat(np.arange(3), n), (len(words), 1)),
            ),
            CopyingLanguage(
                "marked-copy", "w # w over {0, 1}: not context-free", (*BITS, "#"), 2, 2, 1,
                lambda words, n: _joined(words, _marks(words), words),
            ),
            CopyingLanguage(
                "unmarked-copy", "w w over {0, 1}: the middle is not marked", BITS, 2, 2, 0,
                lambda words, n: _joined(words, words),
            ),
            CopyingLanguage(
                "unmarked-copy-different-alphabets", "w w', w' being w in other letters", ("0", "1", "2", "3"), 2, 2, 0,
                lambda words, n: _joined(words, words + 2),
            ),
            CopyingLanguage(
                "marked-reverse-and-copy", "w # w reversed # w over {0, 1}", (*BITS, "#"), 2, 3, 2,
                lambda words, n: _joined(words, _marks(words), words[:, ::-1], _marks(words), words),
            ),
            CopyingLanguage(
                "unmarked-reverse-and-copy", "w, w reversed, w over {0, 1}", BITS, 2, 3, 0,
                lambda words, n: _joined(words, words[:, ::-1], words),
            ),
            CopyingLanguage(
                "count-and-copy", "w #^n w over {0, 1}, n being the length of w", (*BITS, "#"), 2, 3, 0,
                lambda words, n: _joined(words, _marks(words, n), words),
            ),
        )
    }
)  # fmt: skip

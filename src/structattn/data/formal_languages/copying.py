"""Languages beyond the context-free ones whose strings repeat a word, all strings of a length equally likely.

The seven of DuSell & Chiang (2023, section 5). A string is determined by its length and by a word w over the first
``letters`` symbols of the alphabet.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from structattn.data.formal_languages.binary_rules import FloatArray, IndexArray

Strings = NDArray[np.int64]  # (N, length)
BITS = ("0", "1")
MARK = 2  # the index of "#", which follows the letters


def _marks(words: Strings, count: int) -> Strings:
    return np.full((len(words), count), MARK, dtype=np.int64)


def _count_3(words: Strings, size: int) -> Strings:
    return np.tile(np.repeat(np.arange(3), size), (len(words), 1))


def _marked_copy(words: Strings, size: int) -> Strings:
    return np.concatenate([words, _marks(words, 1), words], axis=1)


def _copy(words: Strings, size: int) -> Strings:
    return np.concatenate([words, words], axis=1)


def _copy_in_other_letters(words: Strings, size: int) -> Strings:
    return np.concatenate([words, words + 2], axis=1)


def _marked_reverse_and_copy(words: Strings, size: int) -> Strings:
    return np.concatenate([words, _marks(words, 1), words[:, ::-1], _marks(words, 1), words], axis=1)


def _reverse_and_copy(words: Strings, size: int) -> Strings:
    return np.concatenate([words, words[:, ::-1], words], axis=1)


def _count_and_copy(words: Strings, size: int) -> Strings:
    return np.concatenate([words, _marks(words, size), words], axis=1)


@dataclass(frozen=True)
class CopyingLanguage:
    """Strings of length ``times`` n + ``marks``, one for each word of n letters, all equally likely given the length.

    P(length) is 1 for each length that has strings: only conditional probabilities mean anything.

    Args:
        name: for messages.
        alphabet: the symbols, letters first.
        letters: of how many symbols a word is made; 0 where only n matters.
        times: how many symbols each unit of n gives.
        marks: how many symbols are there besides.
        build: from words (N, n) and n to strings (N, length).
        reading: there is one reading only.
    """

    name: str
    alphabet: tuple[str, ...]
    letters: int
    times: int
    marks: int
    build: Callable[[Strings, int], Strings]
    reading: str = "faithful"

    def size(self, length: int) -> int | None:
        """The n of strings of a length; None where there are none."""
        size, rest = divmod(length - self.marks, self.times)
        return size if size >= 0 and rest == 0 else None

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """The lengths in low..high, both included, of which there are strings.

        Raises:
            ValueError: not 0 <= low <= high.
        """
        if not 0 <= low <= high:
            raise ValueError(f"lengths {low} to {high}; expected 0 <= low <= high")
        return [length for length in range(low, high + 1) if self.size(length) is not None]

    def log_length_probability(self, length: int) -> float:
        """0 where there are strings, -inf elsewhere.

        Raises:
            ValueError: ``length`` is negative.
        """
        if length < 0:
            raise ValueError(f"length is {length}; expected at least 0")
        return -math.inf if self.size(length) is None else 0.0

    def log_count(self, length: int) -> float:
        """The logarithm of the number of strings of a length."""
        size = self.size(length)
        return -math.inf if size is None else size * math.log(max(self.letters, 1))

    def sample_each(self, lengths: ArrayLike, generator: Generator) -> list[IndexArray]:
        """Draw one string of each of the lengths, (N,).

        Raises:
            ValueError: there is no string of one of the lengths.
        """
        wanted = np.asarray(lengths, dtype=np.int64)
        strings: list[IndexArray] = [wanted[:0]] * wanted.size
        for length in np.unique(wanted):
            size = self.size(int(length))
            if size is None:
                raise ValueError(f"{self.name} has no string of length {length}")
            places = np.flatnonzero(wanted == length)
            words = generator.integers(0, max(self.letters, 1), size=(places.size, size))
            for place, string in zip(places, self.build(words, size), strict=True):
                strings[place] = string
        return strings

    def log_probabilities(
        self, strings: Sequence[NDArray[np.integer]], advance: Callable[[int], object] = lambda count: None
    ) -> FloatArray:
        """Minus the logarithm of the number of strings of the same length, (N,) nats; -inf outside the language."""
        found = [-self.log_count(len(string)) if self.accepts(string) else -math.inf for string in strings]
        advance(len(strings))
        return np.array(found, dtype=np.float64)

    def accepts(self, string: NDArray[np.integer]) -> bool:
        """Whether a string is in the language: it is, if it is what its first n symbols determine."""
        size = self.size(len(string))
        if size is None:
            return False
        word = np.asarray(string[:size], dtype=np.int64)[None]
        return bool((word < max(self.letters, 1)).all() or not self.letters) and bool(
            (self.build(word, size)[0] == string).all()
        )


def _language(
    name: str, alphabet: tuple[str, ...], letters: int, times: int, marks: int, build: Callable[[Strings, int], Strings]
) -> tuple[str, CopyingLanguage]:
    return name, CopyingLanguage(name, alphabet, letters, times, marks, build)


COPYING_LANGUAGES: Mapping[str, CopyingLanguage] = MappingProxyType(
    dict(
        [
            _language("count-3", ("a", "b", "c"), 0, 3, 0, _count_3),
            _language("marked-copy", (*BITS, "#"), 2, 2, 1, _marked_copy),
            _language("unmarked-copy", BITS, 2, 2, 0, _copy),
            _language("unmarked-copy-different-alphabets", ("0", "1", "2", "3"), 2, 2, 0, _copy_in_other_letters),
            _language("marked-reverse-and-copy", (*BITS, "#"), 2, 3, 2, _marked_reverse_and_copy),
            _language("unmarked-reverse-and-copy", BITS, 2, 3, 0, _reverse_and_copy),
            _language("count-and-copy", (*BITS, "#"), 2, 3, 0, _count_and_copy),
        ]
    )
)

COPYING_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "count-3": "a^n b^n c^n: not context-free",
        "marked-copy": "w # w over {0, 1}: not context-free",
        "unmarked-copy": "w w over {0, 1}: the middle has to be guessed",
        "unmarked-copy-different-alphabets": "w w', w' being w in other letters",
        "marked-reverse-and-copy": "w # w reversed # w over {0, 1}",
        "unmarked-reverse-and-copy": "w, w reversed, w over {0, 1}",
        "count-and-copy": "w #^n w over {0, 1}, n being the length of w",
    }
)

"""Which symbols can follow each prefix of a string of a copying language, or of the stack language."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from structattn.tasks.formal_languages.copying import CopyingLanguage
from structattn.tasks.formal_languages.stack_language import CLOSE, MAX_DEPTH, OPEN
from structattn.tasks.recognition.language import NextSymbols, String


@dataclass(frozen=True)
class _Template:
    """The strings for words of n letters: at each position a fixed symbol, or one of two by a letter of the word.

    Args:
        symbols: for the letter 0 and the letter 1; equal where the symbol is fixed.
        letters: the index of the letter.
    """

    symbols: list[tuple[int, int]]
    letters: list[int]

    def allowed(self, place: int, word: dict[int, int], end: int) -> set[int]:
        """Return what can stand at a position, given the letters that are known."""
        if place == len(self.symbols):
            return {end}
        letter = word.get(self.letters[place])
        return {*self.symbols[place]} if letter is None else {self.symbols[place][letter]}

    def read(self, place: int, symbol: int, word: dict[int, int]) -> None:
        """Add the letter that a symbol at a position shows to those that are known."""
        zero, one = self.symbols[place]
        if zero != one:
            word[self.letters[place]] = int(symbol == one)


@lru_cache(maxsize=4096)
def _template(language: CopyingLanguage, size: int) -> _Template:
    """Read off the positions of each letter from words that write the letters' indices in binary."""
    digits = max(1, size.bit_length())
    words = np.array([[index >> digit & 1 for index in range(size)] for digit in range(digits)], dtype=np.int64)
    words = np.concatenate([np.zeros((1, size), np.int64), np.ones((1, size), np.int64), words.reshape(digits, size)])
    zeros, ones, *rest = language.build(words, size)
    letters = sum((row == ones).astype(np.int64) << digit for digit, row in enumerate(rest)) * (zeros != ones)
    return _Template([*zip(zeros.tolist(), ones.tolist(), strict=True)], np.asarray(letters).tolist())


@dataclass(frozen=True)
class CopyPrefixes:
    """The symbols that may follow each prefix of members of a copying language: those for any length of the word."""

    language: CopyingLanguage

    def next_symbols(self, string: String) -> NextSymbols:
        """Return a set for each prefix of a member. Cost: O(T^2) for a string of length T."""
        end, found = len(self.language.alphabet), []
        possible = [(_template(self.language, size), dict[int, int]()) for size in range(len(string) + 2)]
        for place in range(len(string) + 1):
            sets = [template.allowed(place, word, end) for template, word in possible]
            found.append(frozenset(set().union(*sets)))
            if place < len(string):
                symbol = string[place]
                possible = [each for each, allowed in zip(possible, sets, strict=True) if symbol in allowed]
                for template, word in possible:
                    template.read(place, symbol, word)
        return found


@dataclass(frozen=True)
class StackPrefixes:
    """The symbols that may follow each prefix of members of the stack language."""

    num_symbols: int

    @cached_property
    def _sets(self) -> list[frozenset[int]]:
        """The symbols at each depth: the digit that states it, brackets within the limits, and the end."""
        depths = range(MAX_DEPTH + 1)
        brackets = [[OPEN] * (depth < MAX_DEPTH) + [CLOSE] * (depth > 0) for depth in depths]
        return [frozenset({depth, self.num_symbols, *brackets[depth]}) for depth in depths]

    def next_symbols(self, string: String) -> NextSymbols:
        """Return a set for each prefix of a member."""
        depth, found = 0, [self._sets[0]]
        for symbol in string:
            depth += (symbol == OPEN) - (symbol == CLOSE)
            found.append(self._sets[depth])
        return found

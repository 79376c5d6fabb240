"""Recognition of the languages of this library, and of own grammars and automata, with the next symbols of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from structattn.support.errors import UsageError
from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.copying import CopyingLanguage
from structattn.tasks.formal_languages.grammar import Grammar
from structattn.tasks.formal_languages.next_symbols import END, Recognizer, following
from structattn.tasks.formal_languages.registry import Language
from structattn.tasks.formal_languages.stack_language import CLOSE, MAX_DEPTH, OPEN, StackLanguage
from structattn.tasks.recognition.language import NextSymbols, Shape, String, uniform_lengths


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


def _next_in_grammar(grammar: Grammar, string: String) -> NextSymbols:
    """Return the symbols that may follow each prefix of a string of a grammar, ambiguous or not.

    Cost: O(T^3) for a string of length T, O(T^2) for an unambiguous grammar.

    Raises:
        ValueError: the string is no prefix of a member.
    """
    alphabet = grammar.alphabet
    recognizer = Recognizer(grammar)  # a new one for each string, as it keeps all prefixes that it has read
    found = following(recognizer, [alphabet[symbol] for symbol in string])
    if len(found) <= len(string):
        raise ValueError(f"position {len(found) - 1}: the string is no prefix of a member")
    index_of = {symbol: index for index, symbol in enumerate((*alphabet, END))}
    return [frozenset(index_of[symbol] for symbol in each) for each in found]


def _next_in_copies(language: CopyingLanguage, string: String) -> NextSymbols:
    """Return the symbols that may follow each prefix of a member of a copying language, for any length of the word.

    Cost: O(T^2) for a string of length T.
    """
    end, found = len(language.alphabet), []
    possible = [(_template(language, size), dict[int, int]()) for size in range(len(string) + 2)]
    for place in range(len(string) + 1):
        sets = [template.allowed(place, word, end) for template, word in possible]
        found.append(frozenset(set().union(*sets)))
        if place < len(string):
            symbol = string[place]
            possible = [each for each, allowed in zip(possible, sets, strict=True) if symbol in allowed]
            for template, word in possible:
                template.read(place, symbol, word)
    return found


def _next_in_stack_language(end: int, string: String) -> NextSymbols:
    """Return the digit that states the depth, brackets within the limits, and the end, for each prefix of a member."""
    depths = accumulate(((symbol == OPEN) - (symbol == CLOSE) for symbol in string), initial=0)
    return [frozenset({each, end, *[OPEN] * (each < MAX_DEPTH), *[CLOSE] * (each > 0)}) for each in depths]


class AdaptedLanguage:
    """A formal language with exact probabilities as one to recognize; see ``RecognitionLanguage``.

    Members are drawn from P(string | length) with lengths uniform over those that have strings.

    Args:
        language: the language; its strings are those with a probability above 0.
        classes: the class of each symbol; by default all are of one.
        has_shape: the shape of its members, if it has a rule of its own.
    """

    def __init__(
        self, language: Language, classes: tuple[int, ...] | None = None, has_shape: Shape | None = None
    ) -> None:
        self.language, self.has_shape = language, has_shape
        self.classes = (0,) * len(language.alphabet) if classes is None else classes

    @property
    def name(self) -> str:
        """The name of the language, or of its file."""
        return self.language.name

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The symbols."""
        return self.language.alphabet

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """Return the lengths from ``low`` to ``high`` inclusive that members have."""
        return self.language.valid_lengths(low, high)

    def draw(self, count: int, high: int, generator: Generator) -> list[String]:
        """Draw members of length 0 to ``high``.

        Raises:
            UsageError: there are none.
        """
        return self.sample_each(uniform_lengths(self, count, high, generator), generator)

    def sample_each(self, lengths: Sequence[int], generator: Generator) -> list[String]:
        """Draw a member of each length."""
        return [tuple(string.tolist()) for string in self.language.sample_each(np.array(lengths, int), generator)]

    def sample_near(self, lengths: Sequence[int], generator: Generator) -> list[String]:
        """Draw a member of each length."""
        return self.sample_each(lengths, generator)

    def accepts_each(self, strings: Sequence[String]) -> list[bool]:
        """Return whether each string is a member.

        Raises:
            UsageError: a probability is outside the range of float64.
        """
        try:
            log_probs = self.language.log_probabilities([np.array(string, dtype=np.int64) for string in strings])
        except ValueError as error:
            raise UsageError(f"{self.name}: {error}") from None
        accepted: list[bool] = (log_probs > -np.inf).tolist()
        return accepted

    def next_symbols(self, string: String) -> NextSymbols:
        """Return the symbols that may follow each prefix of a member.

        Raises:
            UsageError: the language is one of a plugin.
        """
        match self.language:
            case ContextFreeLanguage():
                return _next_in_grammar(self.language.grammar, string)
            case CopyingLanguage():
                return _next_in_copies(self.language, string)
            case StackLanguage():
                return _next_in_stack_language(len(self.alphabet), string)
        raise UsageError(
            f"{self.name}: next symbols are not known of languages of plugins; expected training.recognition."
            "next_symbols 0"
        )

    def log_conditionals(self, strings: Sequence[String]) -> NDArray[np.float64] | None:
        """Return log P(string | length) of members as ``sample_each`` draws them, in nats."""
        of_lengths = np.array([self.language.log_length_probability(len(string)) for string in strings])
        drawn = [np.array(string, dtype=np.int64) for string in strings]
        log_conditionals: NDArray[np.float64] = np.minimum(self.language.log_probabilities(drawn) - of_lengths, 0.0)
        return log_conditionals

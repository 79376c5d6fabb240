"""Recognition of the languages of this library, and of own grammars and automata."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from structattn.support.errors import UsageError
from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.copying import CopyingLanguage
from structattn.tasks.formal_languages.registry import Language
from structattn.tasks.formal_languages.stack_language import StackLanguage
from structattn.tasks.recognition.copy_prefixes import CopyPrefixes, StackPrefixes
from structattn.tasks.recognition.earley import PrefixParser
from structattn.tasks.recognition.language import NextSymbols, Shape, String, uniform_lengths


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
        return self._prefixes.next_symbols(string)

    def log_conditionals(self, strings: Sequence[String]) -> NDArray[np.float64] | None:
        """Return log P(string | length) of members as ``sample_each`` draws them, in nats."""
        of_lengths = np.array([self.language.log_length_probability(len(string)) for string in strings])
        drawn = [np.array(string, dtype=np.int64) for string in strings]
        log_conditionals: NDArray[np.float64] = np.minimum(self.language.log_probabilities(drawn) - of_lengths, 0.0)
        return log_conditionals

    @cached_property
    def _prefixes(self) -> PrefixParser | CopyPrefixes | StackPrefixes:
        match self.language:
            case ContextFreeLanguage():
                return PrefixParser(self.language.grammar)
            case CopyingLanguage():
                return CopyPrefixes(self.language)
            case StackLanguage():
                return StackPrefixes(len(self.alphabet))
        raise UsageError(
            f"{self.name}: next symbols are not known of languages of plugins; expected training.recognition."
            "next_symbols 0"
        )

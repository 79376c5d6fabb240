"""The formal languages by name, and the protocol of all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from structattn.settings.base import hint_for_name
from structattn.settings.choices import Variant
from structattn.support.errors import UsageError
from structattn.support.plugins import Plugin, Registry
from structattn.support.progress import Advance, show_nothing
from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.copying import COPYING_LANGUAGES
from structattn.tasks.formal_languages.grammar import VARIANTS, Grammar, normalized, rule
from structattn.tasks.formal_languages.length_table import FloatArray, IndexArray
from structattn.tasks.formal_languages.stack_language import StackLanguage
from structattn.text.tokenization.vocabulary import Vocabulary


class Language(Protocol):
    """A distribution over strings with exact probabilities; a string is an array of indices into ``alphabet``."""

    @property
    def name(self) -> str:
        """The name of the language."""

    @property
    def variant(self) -> str:
        """The variant of its definition: ``faithful`` or ``reference``."""

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The symbols."""

    def valid_lengths(self, low: int, high: int) -> list[int]:
        """Return the lengths from ``low`` to ``high`` inclusive that have strings."""

    def log_length_probability(self, length: int) -> float:
        """Return log P(length), in nats; -inf if no string has that length."""

    def sample_each(self, lengths: ArrayLike, generator: Generator) -> list[IndexArray]:
        """Sample one string of each length from P(string | length)."""

    def log_probabilities(self, strings: Sequence[NDArray[np.integer]], advance: Advance = show_nothing) -> FloatArray:
        """Return the log-probability of each string, (N,) in nats; -inf outside the language.

        Raises:
            ValueError: an index is outside the alphabet.
        """


BITS = ("0", "1")
BRACKETS = (("(", ")"), ("[", "]"))
HALF = Fraction(1, 2)


def continuing(mean: Fraction | int) -> Fraction:
    """Return the continuation probability of a geometric distribution with that mean: mean / (mean + 1)."""
    return Fraction(mean) / (Fraction(mean) + 1)


def marked_reversal() -> Grammar:
    """Return the grammar of w # w reversed: S -> a S a | #, with 60 symbols on each side on average."""
    more = continuing(60)
    rules = [rule("S", f"{bit} S {bit}", more / 2) for bit in BITS] + [rule("S", "#", 1 - more)]
    return Grammar("S", (*BITS, "#"), normalized(rules))


def unmarked_reversal() -> Grammar:
    """Return the grammar of w w reversed: S -> a S a | empty, with 60 symbols on each side on average."""
    more = continuing(60)
    rules = [rule("S", f"{bit} S {bit}", more / 2) for bit in BITS] + [rule("S", "", 1 - more)]
    return Grammar("S", BITS, normalized(rules))


def padded_reversal() -> Grammar:
    """Return the grammar of w a^p w reversed: S -> a S a | P_a and P_a -> a P_a | empty.

    On average there are 60 symbols on each side and 30 of padding.
    """
    more, pad = continuing(60), continuing(30)
    rules = [rule("S", f"{bit} S {bit}", more / 2) for bit in BITS]
    rules += [rule("S", f"P{bit}", (1 - more) / 2) for bit in BITS]
    for bit in BITS:
        rules += [rule(f"P{bit}", f"{bit} P{bit}", pad), rule(f"P{bit}", "", 1 - pad)]
    return Grammar("S", BITS, normalized(rules))


def dyck() -> Grammar:
    """Return the grammar of balanced strings of two kinds of brackets: S -> S T | T and T -> l S r | l r.

    On average S splits once, and the nesting depth is 40.
    """
    split, deeper = continuing(1), continuing(40 - 1)
    rules = [rule("S", "S T", split), rule("S", "T", 1 - split)]
    for left, right in BRACKETS:
        rules += [rule("T", f"{left} S {right}", deeper / 2), rule("T", f"{left} {right}", (1 - deeper) / 2)]
    return Grammar("S", ("(", ")", "[", "]"), normalized(rules))


def hardest_cfl() -> Grammar:
    r"""Return the grammar of Greibach's hardest context-free language over $ and two kinds of brackets.

    A string is a sequence of fields, each terminated by ";", and a field is a sequence of alternatives separated by
    ",". It is in the language if choosing one alternative of each field can give "$" and a balanced string. A and B
    are the alternatives to the right and to the left of the chosen one (the papers' L and R); Q splits the chosen
    string into fields. Means: .5 commas, .5 symbols in fillers that may be empty, 2 in others, 1.5 splits, depth 3; a
    semicolon has probability 1/4.
    """
    comma, short, long = continuing(HALF), continuing(HALF), continuing(2 - 1)
    semicolon, split, deeper = Fraction(1, 4), continuing(Fraction(3, 2)), continuing(3)
    rules = [
        rule("Z", "B $ Q S A ;", 1),
        *(rule("A", "A' , U", 1), rule("A'", ", V A'", comma), rule("A'", "", 1 - comma)),
        *(rule("B", "U , B'", 1), rule("B'", "B' V ,", comma), rule("B'", "", 1 - comma)),
        *(rule("U", "W U", short), rule("U", "", 1 - short)),
        *(rule("V", "W V", long), rule("V", "W", 1 - long)),
        *(rule("W", terminal, Fraction(1, 5)) for terminal in ("(", ")", "[", "]", "$")),
        *(rule("Q", "A ; B", semicolon), rule("Q", "", 1 - semicolon)),
        *(rule("S", "S Q T", split), rule("S", "T", 1 - split)),
    ]
    for left, right in BRACKETS:
        rules += [rule("T", f"{left} Q S Q {right}", deeper / 2), rule("T", f"{left} Q {right}", (1 - deeper) / 2)]
    return Grammar("Z", ("(", ")", "[", "]", ",", ";", "$"), normalized(rules))


GRAMMARS: Mapping[str, Callable[[], Grammar]] = MappingProxyType(
    {
        "marked-reversal": marked_reversal,
        "unmarked-reversal": unmarked_reversal,
        "padded-reversal": padded_reversal,
        "dyck": dyck,
        "hardest-cfl": hardest_cfl,
    }
)

GRAMMAR_DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "marked-reversal": "w # w reversed over {0, 1}: deterministic",
        "unmarked-reversal": "w w reversed over {0, 1}: the middle is not marked",
        "padded-reversal": "w a^p w reversed over {0, 1}: the padding is not marked",
        "dyck": "balanced strings of two kinds of brackets",
        "hardest-cfl": "Greibach's hardest context-free language: one alternative per field gives $ and a Dyck string",
    }
)


FORMAL_LANGUAGES: Registry[str] = Registry(
    "formal language",
    {
        **GRAMMAR_DESCRIPTIONS,
        **{name: language.description for name, language in COPYING_LANGUAGES.items()},
        StackLanguage.name: "brackets nested at most four deep, and digits that state the depth",
    },
)
"""The names of all formal languages, with one-line descriptions."""
_REGISTERED: dict[str, Language] = {}


@dataclass(frozen=True)
class FormalLanguage:
    """Entry of a formal language of a plugin, to be registered under its name.

    Args:
        language: the language.
        description: one line for `structattn list`.
    """

    language: Language
    description: str

    def register(self, plugin: Plugin) -> None:
        """Add this to the formal languages.

        Raises:
            UsageError: the name is taken, the language lacks a method, or a symbol of its alphabet is empty, reserved,
                or occurs twice.
        """
        wanted = [each for each in vars(Language) if not each.startswith("_")]
        if missing := [each for each in wanted if not hasattr(self.language, each)]:
            raise UsageError(f"formal language {self.language!r}: has no {missing[0]}; expected {', '.join(wanted)}")
        try:
            Vocabulary.from_symbols(self.language.alphabet)
        except ValueError as error:
            reason = f"alphabet: {error}; expected distinct symbols, none reserved"
            raise UsageError(f"formal language {self.language.name!r}: {reason}") from None
        FORMAL_LANGUAGES.add(self.language.name, self.description, plugin)
        _REGISTERED[self.language.name] = self.language


def formal_language(name: str, variant: Variant = "faithful") -> Language:
    """Return the formal language of that name.

    Args:
        name: a key of ``FORMAL_LANGUAGES``: the five context-free languages of DuSell & Chiang (2020, 2024), the seven
            copying languages of DuSell & Chiang (2023), and the stack language of the Discrete Transformer.
        variant: ``faithful`` or ``reference``; they differ only for the context-free languages.

    Raises:
        UsageError: no language or variant has that name.
    """
    if name not in FORMAL_LANGUAGES:
        known = ", ".join(FORMAL_LANGUAGES)
        raise UsageError(
            f"formal language {name!r} is unknown; expected a file .cfg, .fsa or .regex, or one of {known}"
            f"{hint_for_name(name, FORMAL_LANGUAGES)}"
        )
    if variant not in VARIANTS:
        raise UsageError(f"variant {variant!r} is unknown; expected one of {', '.join(VARIANTS)}")
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in GRAMMARS:
        return ContextFreeLanguage(name, variant, GRAMMARS[name]())
    return COPYING_LANGUAGES[name] if name in COPYING_LANGUAGES else StackLanguage()

"""Labelled strings: members, and negatives as FLaRe draws them (Butoi et al. 2025)."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

from numpy.random import Generator

from structattn.support.errors import UsageError
from structattn.tasks.recognition.copies import word
from structattn.tasks.recognition.language import RecognitionLanguage, String

MEMBER, UNIFORM = -1, 0
MAX_TRIES = 100
T = TypeVar("T")


class Example(NamedTuple):
    """A string and where it comes from.

    Args:
        string: the string.
        edits: the number of edits of a member that made a negative; 0 for one that is drawn uniformly, -1 for a member.
    """

    string: String
    edits: int

    @property
    def is_member(self) -> bool:
        """The label."""
        return self.edits == MEMBER


def flare_examples(
    language: RecognitionLanguage, count: int, high: int, generator: Generator, excluded: Collection[String] = ()
) -> list[Example]:
    """Draw strings of length 0 to ``high``, each a member with probability 1/2; those ``excluded`` are drawn again.

    Raises:
        UsageError: 100 draws in a row were excluded, or negatives that are members.
    """
    labels = (generator.random(count) < 0.5).tolist()

    def members(number: int) -> list[Example]:
        return [Example(string, MEMBER) for string in language.draw(number, high, generator)]

    def candidates(number: int) -> list[Example]:
        num_edits = generator.geometric(0.5, size=number)
        num_edits[generator.random(number) < 0.5] = UNIFORM
        sources = iter(language.draw(int((num_edits > 0).sum()), high, generator))
        size = len(language.alphabet)
        return [
            Example(perturbed(next(sources), edits, high, size, generator), edits)
            if edits
            else Example(word(int(generator.integers(high + 1)), size, generator), UNIFORM)
            for edits in num_edits.tolist()
        ]

    def is_new(drawn: Sequence[Example]) -> list[bool]:
        return [each.string not in excluded for each in drawn]

    def is_negative(drawn: Sequence[Example]) -> list[bool]:
        accepted = language.accepts_each([each.string for each in drawn])
        return [new and not member for new, member in zip(is_new(drawn), accepted, strict=True)]

    drawn = {
        True: iter(_until(sum(labels), members, is_new, f"{language.name}: members of length 0 to {high}")),
        False: iter(
            _until(count - sum(labels), candidates, is_negative, f"{language.name}: negatives of length 0 to {high}")
        ),
    }
    return [next(drawn[label]) for label in labels]


def _until(
    count: int, propose: Callable[[int], list[T]], keep: Callable[[Sequence[T]], list[bool]], what: str
) -> list[T]:
    """Propose ``count`` values and propose again in the place of those that are not kept, at most 100 times."""
    values, missing = propose(count), [*range(count)]
    for _ in range(MAX_TRIES):
        kept = keep([values[index] for index in missing])
        missing = [index for index, good in zip(missing, kept, strict=True) if not good]
        if not missing:
            return values
        for index, value in zip(missing, propose(len(missing)), strict=True):
            values[index] = value
    raise UsageError(f"{what}: {MAX_TRIES} draws gave none that is needed; expected other lengths or fewer strings")


def perturbed(string: String, num_edits: int, high: int, num_symbols: int, generator: Generator) -> String:
    """Edit a string ``num_edits`` times, each time by one of the edits that are possible, uniformly.

    They are an insertion, if the string is shorter than ``high``; a replacement by another symbol and a deletion, if
    it is not empty. Edits may cancel each other.
    """
    symbols = [*string]
    for _ in range(num_edits):
        possible = ["insert"] if len(symbols) < high else []
        if symbols:
            possible += ["replace", "delete"] if num_symbols > 1 else ["delete"]
        match possible[generator.integers(len(possible))]:
            case "insert":
                symbols.insert(int(generator.integers(len(symbols) + 1)), int(generator.integers(num_symbols)))
            case "replace":
                place = int(generator.integers(len(symbols)))
                symbols[place] = other_than(symbols[place], range(num_symbols), generator)
            case _:
                del symbols[int(generator.integers(len(symbols)))]
    return tuple(symbols)


def other_than(symbol: int, symbols: Sequence[int], generator: Generator) -> int:
    """Draw uniformly one of the symbols that is another one."""
    others = [each for each in symbols if each != symbol]
    return others[generator.integers(len(others))]

"""Well-shaped negatives: strings outside a language that satisfy a rule of its members.

Each negative is one edit away from a member of its length, satisfies the rule, and is no member. Members and negatives
have the same number of strings at each length, so the length does not give the label away either.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.random import Generator

from structattn.tasks.recognition.examples import MEMBER, Example, other_than
from structattn.tasks.recognition.language import RecognitionLanguage, Shape, String

_ROUNDS, _NARROW_ROUNDS, _WIDTH = 80, 4, 16  # up to 4 + 76 · 16 candidates for each negative


@dataclass(frozen=True)
class Split:
    """A split of all strings: a string belongs to exactly one, by its hash.

    Args:
        shares: greatest length -> split -> its share of the strings up to this length, beyond the length before it.
    """

    name: str
    shares: tuple[tuple[int, dict[str, float]], ...]
    seed: int = 0

    def __contains__(self, string: object) -> bool:
        """Return whether a string belongs to the split."""
        assert isinstance(string, tuple)
        shares = self._shares_at(len(string))
        if [*shares.values()] == [1.0]:
            return self.name in shares
        rank = _rank(string, self.seed)
        for name, share in shares.items():
            rank -= share
            if rank < 0:
                return name == self.name
        return False

    def _shares_at(self, length: int) -> dict[str, float]:
        return next((shares for high, shares in self.shares if length <= high), {})


def _rank(string: String, seed: int) -> float:
    """Return a number from 0 to 1 that is a hash of a string."""
    digest = hashlib.blake2b(f"{seed}:{string}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


def hard_examples(
    language: RecognitionLanguage, lengths: Sequence[int], split: Split, shape: Shape, generator: Generator
) -> list[Example]:
    """Draw a member and a well-shaped negative of each length, all of one split.

    Where either cannot be found in some hundred tries, both are left out: a length may have too few strings.

    Args:
        language: the language.
        lengths: the length of each pair, one that members have.
        split: the strings that may be drawn.
        shape: negatives satisfy this rule.
        generator: of all that is drawn.
    """
    members = _members(language, lengths, split, generator)
    found = [index for index, member in enumerate(members) if member is not None]
    negatives = _negatives(language, [lengths[index] for index in found], split, shape, generator)
    examples: list[Example] = []
    for index, negative in zip(found, negatives, strict=True):
        member = members[index]
        if member is not None and negative is not None:
            examples += [Example(member, MEMBER), negative]
    return examples


def _members(
    language: RecognitionLanguage, lengths: Sequence[int], split: Split, generator: Generator
) -> list[String | None]:
    """Draw a member of each length; None where none was found."""
    found: list[String | None] = [None] * len(lengths)
    missing = [*range(len(lengths))]
    for _ in range(_ROUNDS):
        drawn = language.sample_each([lengths[index] for index in missing], generator)
        for index, string in zip(missing, drawn, strict=True):
            if string in split:
                found[index] = string
        missing = [index for index in missing if found[index] is None]
        if not missing:
            break
    return found


def _negatives(
    language: RecognitionLanguage, lengths: Sequence[int], split: Split, shape: Shape, generator: Generator
) -> list[Example | None]:
    """Draw a negative of each length; None where none was found."""
    found: list[Example | None] = [None] * len(lengths)
    missing = [*range(len(lengths))]
    for round_number in range(_ROUNDS):
        width = 1 if round_number < _NARROW_ROUNDS else _WIDTH
        sources = language.sample_near([lengths[index] for index in missing], generator)
        candidates = [
            (index, Example(edited, sum(map(int.__ne__, edited, source))))
            for index, source in zip(missing, sources, strict=True)
            for edited in (edit(source, language.classes, generator) for _ in range(width))
            if edited != source and shape(edited) and edited in split
        ]
        accepted = language.accepts_each([each.string for _, each in candidates])
        for (index, each), is_member in zip(candidates, accepted, strict=True):
            if not is_member:
                found[index] = each
        missing = [index for index in missing if found[index] is None]
        if not missing:
            break
    return found


def edit(string: String, classes: Sequence[int], generator: Generator) -> String:
    """Edit a string and keep its length: replace a symbol by one of its class or of any class, or swap two of a class.

    The string is returned as it is where its symbols leave no such edit.
    """
    if not string:
        return string
    symbols, place, kind = [*string], int(generator.integers(len(string))), generator.integers(5)
    own = [symbol for symbol, of in enumerate(classes) if of == classes[string[place]]]
    if kind == 0:
        own = [*range(len(classes))]
    if kind < 3:
        if len(own) > 1:
            symbols[place] = other_than(string[place], own, generator)
        return tuple(symbols)
    other = int(generator.integers(len(string)))
    if string[other] in own:
        symbols[place], symbols[other] = string[other], string[place]
    return tuple(symbols)

"""A formal language posed as a transduction: is a string in it, or how does a string of it go on?"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.random import Generator

from structattn.data.formal_languages import Language, formal_language
from structattn.data.formal_languages.copying import COPYING_LANGUAGES
from structattn.data.transductions.transduction import Pairs, Strings, Transduction
from structattn.support.errors import UsageError

NO, YES = 0, 1
MOST_TRIES = 1000  # for a string outside the language; where that many fail, there is none so near
_REVERSALS = ("marked-reversal", "unmarked-reversal")
COMPLETED = (*_REVERSALS, *(name for name in COPYING_LANGUAGES if name != "count-3"))
"""The languages whose strings are determined by their first part, a word."""


@cache
def recognition(language_name: str, edits: int) -> Transduction:
    """Whether x is in a language: "yes" or "no", equally often.

    A "no" is a string of the language in which ``edits`` symbols at places drawn without replacement were changed to
    others, drawn anew until the result is outside the language: its edit distance from the language is from 1 to
    ``edits``. Lengths tell nothing, since x of either kind have the lengths of the language's strings.

    Raises:
        UsageError: no language has that name, or ``edits`` is below 1.
    """
    if edits < 1:
        raise UsageError(f"recognition of {language_name} at edit distance {edits}; expected at least 1")
    language = formal_language(language_name)

    def draw(length: int, count: int, generator: Generator) -> Pairs:
        positive = generator.integers(0, 2, size=count)
        x = np.array(language.sample_each([length] * count, generator), dtype=np.int64).reshape(count, length)
        for row in np.flatnonzero(positive == NO):
            x[row] = _outside(language, x[row], edits, generator)
        return x, positive[:, None]

    return Transduction(
        name=f"recognise:{language_name}:{edits}",
        description=f"whether a string is in {language_name}; others are up to {edits} edits from it",
        inputs=language.alphabet,
        outputs=("no", "yes"),
        draw=draw,
        level="recognition",
        has_length=lambda length: length >= edits and bool(language.valid_lengths(length, length)),
    )


def _outside(language: Language, string: Strings, edits: int, generator: Generator) -> Strings:
    """The string with some of its symbols changed so that it leaves the language."""
    size, symbols = len(string), len(language.alphabet)
    for _ in range(MOST_TRIES):
        places = generator.choice(size, size=edits, replace=False)
        changed = string.copy()
        changed[places] = (changed[places] + generator.integers(1, symbols, size=edits)) % symbols
        if language.log_probabilities([changed])[0] == -np.inf:
            return changed
    raise UsageError(
        f"{language.name}: found no string outside it {edits} edits from one of its {size} symbols; "
        "choose greater lengths or fewer edits"
    )


@cache
def completion(language_name: str) -> Transduction:
    """How a string goes on: x is its first part, a word, and y the rest, which that determines.

    Raises:
        UsageError: strings of that language are not determined by their first part.
    """
    if language_name not in COMPLETED:
        raise UsageError(f"{language_name} is not determined by a first part; expected one of {', '.join(COMPLETED)}")
    language = formal_language(language_name)
    whole = _length_of_whole(language_name)

    def draw(length: int, count: int, generator: Generator) -> Pairs:
        strings = language.sample_each([whole(length)] * count, generator)
        rows = np.array(strings, dtype=np.int64).reshape(count, whole(length))
        return rows[:, :length], rows[:, length:]

    return Transduction(
        name=f"complete:{language_name}",
        description=f"how a string of {language_name} goes on after its first word",
        inputs=language.alphabet,
        outputs=language.alphabet,
        draw=draw,
        level="completion",
    )


def _length_of_whole(name: str) -> Callable[[int], int]:
    """From the length of the first part to that of the string."""
    if name in _REVERSALS:
        return lambda length: 2 * length + (name == "marked-reversal")
    language = COPYING_LANGUAGES[name]
    return lambda length: language.times * length + language.marks

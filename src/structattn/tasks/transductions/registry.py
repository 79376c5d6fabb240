"""All transductions: regular, context-free and context-sensitive, and those of formal languages."""

import re
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.random import Generator

from structattn.settings.base import hint_for_name
from structattn.support.errors import UsageError
from structattn.support.plugins import Plugin, Registry
from structattn.tasks.formal_languages.copying import COPYING_LANGUAGES
from structattn.tasks.formal_languages.registry import FORMAL_LANGUAGES, Language, formal_language
from structattn.tasks.transductions.context_free import CONTEXT_FREE
from structattn.tasks.transductions.context_sensitive import CONTEXT_SENSITIVE
from structattn.tasks.transductions.regular import REGULAR
from structattn.tasks.transductions.transduction import Pairs, Strings, Transduction

NO = 0  # the index of the answer
MAX_TRIES = 1000  # to find a string outside the language; if all fail, there is probably none at this distance
_REVERSALS = ("marked-reversal", "unmarked-reversal")
COMPLETABLE = (*_REVERSALS, *(name for name in COPYING_LANGUAGES if name != "count-3"))
"""The languages whose strings are determined by their first word."""


@cache
def recognition(language_name: str, edits: int) -> Transduction:
    """Return the task of deciding whether x is in a language; "yes" and "no" are equally likely.

    A "no" is a string of the language in which ``edits`` symbols at positions drawn without replacement were replaced,
    drawn again until the result is outside the language. Its edit distance from the language is from 1 to ``edits``.
    Both kinds of x have the same lengths, so length is not informative.

    Args:
        language_name: the name of a formal language.
        edits: the number of replaced symbols, at least 1.

    Raises:
        UsageError: no language has that name, or one of a single symbol; or ``edits`` is below 1.
    """
    if edits < 1:
        raise UsageError(f"recognition of {language_name} at edit distance {edits}; expected at least 1")
    if language_name not in FORMAL_LANGUAGES:  # files have no transductions
        known, hint = ", ".join(FORMAL_LANGUAGES), hint_for_name(language_name, FORMAL_LANGUAGES)
        raise UsageError(f"formal language {language_name!r} is unknown; expected one of {known}{hint}")
    language = formal_language(language_name)
    if len(language.alphabet) < 2:
        raise UsageError(f"recognition of {language_name}: its alphabet is {language.alphabet}; expected two symbols")

    def draw(length: int, count: int, generator: Generator) -> Pairs:
        positive = generator.integers(0, 2, size=count)
        x = np.array(language.sample_each([length] * count, generator), dtype=np.int64).reshape(count, length)
        negative = positive == NO
        x[negative] = _outside(language, x[negative], edits, generator)
        return x, positive[:, None]

    return Transduction(
        name=f"recognise:{language_name}:{edits}",
        description=f"whether a string is in {language_name}; others are up to {edits} edits away",
        inputs=language.alphabet,
        outputs=("no", "yes"),
        draw=draw,
        level="recognition",
        has_length=lambda length: length >= edits and bool(language.valid_lengths(length, length)),
    )


def _outside(language: Language, strings: Strings, edits: int, generator: Generator) -> Strings:
    """Replace symbols of strings (N, T) so that they are outside the language, which is asked about all at once."""
    found, waiting = strings.copy(), np.arange(len(strings))
    for _ in range(MAX_TRIES):
        if not waiting.size:
            return found
        for row in waiting:
            found[row] = _edited(strings[row], edits, len(language.alphabet), generator)
        waiting = waiting[language.log_probabilities(list(found[waiting])) > -np.inf]
    raise UsageError(
        f"{language.name}: found no string of length {strings.shape[1]} outside the language at {edits} edits; "
        "use greater lengths or fewer edits"
    )


def _edited(string: Strings, edits: int, symbols: int, generator: Generator) -> Strings:
    positions, edited = generator.choice(len(string), size=edits, replace=False), string.copy()
    edited[positions] = (edited[positions] + generator.integers(1, symbols, size=edits)) % symbols
    return edited


@cache
def completion(language_name: str) -> Transduction:
    """Return the task of completing a string: x is its first word, and y the rest, which the word determines.

    Raises:
        UsageError: strings of that language are not determined by their first word.
    """
    if language_name not in COMPLETABLE:
        raise UsageError(
            f"{language_name} is not determined by the first word; expected one of {', '.join(COMPLETABLE)}"
        )
    language = formal_language(language_name)
    total_length = _total_length(language_name)

    def draw(length: int, count: int, generator: Generator) -> Pairs:
        strings = language.sample_each([total_length(length)] * count, generator)
        rows = np.array(strings, dtype=np.int64).reshape(count, total_length(length))
        return rows[:, :length], rows[:, length:]

    return Transduction(
        name=f"complete:{language_name}",
        description=f"the rest of a string of {language_name} after its first word",
        inputs=language.alphabet,
        outputs=language.alphabet,
        draw=draw,
        level="completion",
    )


def _total_length(name: str) -> Callable[[int], int]:
    """Return the function that maps the length of the first word to that of the string."""
    if name in _REVERSALS:
        return lambda length: 2 * length + (name == "marked-reversal")
    language = COPYING_LANGUAGES[name]
    return lambda length: language.times * length + language.marks


TRANSDUCTIONS: Registry[Transduction] = Registry(
    "transduction", {task.name: task for task in (*CONTEXT_FREE, *REGULAR, *CONTEXT_SENSITIVE)}
)


def add_transduction(task: Transduction, plugin: Plugin) -> None:
    """Add a transduction of a plugin.

    Raises:
        UsageError: the name is taken.
    """
    TRANSDUCTIONS.add(task.name, task, plugin)


def transduction(name: str) -> Transduction:
    """Return the transduction of that name.

    Args:
        name: a key of ``TRANSDUCTIONS``; or ``recognise:LANGUAGE:EDITS`` or ``complete:LANGUAGE``, a formal language
            as a transduction.

    Raises:
        UsageError: none has that name.
    """
    if name in TRANSDUCTIONS:
        return TRANSDUCTIONS[name]
    pose, *arguments = name.split(":")
    if pose == "recognise" and len(arguments) == 2 and re.fullmatch("[0-9]{1,9}", arguments[1]):
        return recognition(arguments[0], int(arguments[1]))
    if pose == "complete" and len(arguments) == 1:
        return completion(arguments[0])
    known = ", ".join([*TRANSDUCTIONS, "recognise:LANGUAGE:EDITS", "complete:LANGUAGE"])
    hint = hint_for_name(name, TRANSDUCTIONS)
    raise UsageError(f"transduction {name!r} is unknown; expected one of {known}{hint}")

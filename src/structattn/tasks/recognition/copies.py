"""The languages of FLaRe that count, copy, reverse and sort."""

import math
from collections.abc import Callable

from numpy.random import Generator

from structattn.tasks.recognition.language import FlareLanguage, NextSymbols, String
from structattn.tasks.recognition.regular import BITS

MARK = 2  # "#" or "_", after the bits


def word(length: int, num_symbols: int, generator: Generator) -> String:
    """Draw a uniform word."""
    return tuple(generator.integers(num_symbols, size=length).tolist())


def _odd(length: int) -> bool:
    return length % 2 == 1


def _even(length: int) -> bool:
    return length % 2 == 0


def marked(name: str, description: str, alphabet: tuple[str, ...], image: Callable[[String], String]) -> FlareLanguage:
    """Return the language of w # image(w), where the image has the length of w."""
    mark = len(alphabet) - 1

    def sample(length: int, generator: Generator) -> String:
        w = word(length // 2, mark, generator)
        return (*w, mark, *image(w))

    def accepts(string: String) -> bool:
        w = string[: len(string) // 2]
        return mark not in w and string == (*w, mark, *image(w))

    def next_symbols(string: String) -> NextSymbols:
        free = frozenset(range(mark + 1))
        half = len(string) // 2
        return [free] * (half + 1) + [frozenset({each}) for each in (*string[half + 1 :], mark + 1)]

    def has_shape(string: String) -> bool:
        return _odd(len(string)) and string.count(mark) == 1 and string[len(string) // 2] == mark

    classes = (0,) * mark + (1,)
    return FlareLanguage(
        name,
        description,
        alphabet,
        _odd,
        sample,
        accepts,
        next_symbols,
        classes,
        has_shape,
        log_conditional=lambda string: -(len(string) // 2) * math.log(mark),
    )


def _with_ends(string: String, symbols: frozenset[int], end: int, accepts: Callable[[String], bool]) -> NextSymbols:
    """Return the same symbols after each prefix, and the end after those that are members."""
    prefixes = (string[:size] for size in range(len(string) + 1))
    return [symbols | {end} if accepts(prefix) else symbols for prefix in prefixes]


def _reversal(length: int, generator: Generator) -> String:
    w = word(length // 2, 2, generator)
    return w + w[::-1]


def _is_reversal(string: String) -> bool:
    return _even(len(string)) and string == string[::-1]


def _missing_duplicate(length: int, generator: Generator) -> String:
    w = [*word(length // 2, 2, generator)]
    w[generator.integers(len(w))] = 1
    string = [*w, *w]
    ones = [place for place, bit in enumerate(string) if bit == 1]
    string[ones[generator.integers(len(ones))]] = MARK
    return tuple(string)


def _one_missing(string: String) -> bool:
    return _even(len(string)) and string.count(MARK) == 1


def _is_missing_duplicate(string: String) -> bool:
    filled = tuple(1 if symbol == MARK else symbol for symbol in string)
    half = len(string) // 2
    return _one_missing(string) and filled[:half] == filled[half:]


def _next_in_missing_duplicate(string: String) -> NextSymbols:
    place = string.index(MARK)
    before, after = frozenset({0, 1, MARK}), frozenset({0, 1})
    ends = _with_ends(string, after, MARK + 1, _is_missing_duplicate)
    return [before] * (place + 1) + ends[place + 1 :]


def _with_ones(ones: int, length: int, generator: Generator) -> String:
    return tuple(generator.permutation([1] * ones + [0] * (length - ones)).tolist())


def _majority(length: int, generator: Generator) -> String:
    return _with_ones(int(generator.integers(length // 2 + 1, length + 1)), length, generator)


def _log_majority(string: String) -> float:
    """Return log P: the number of ones is uniform, then their places are."""
    length = len(string)
    return -math.log(length - length // 2) - math.log(math.comb(length, sum(string)))


def _is_majority(string: String) -> bool:
    return 2 * sum(string) > len(string)


COPIES = (
    FlareLanguage(
        "majority",
        "more ones than zeros",
        BITS,
        lambda length: length >= 1,
        _majority,
        _is_majority,
        lambda string: _with_ends(string, frozenset({0, 1}), 2, _is_majority),
        (0, 0),
        near=lambda length, generator: _with_ones(length // 2 + 1, length, generator),
        log_conditional=_log_majority,
    ),
    marked("marked-reversal", "w # w reversed", (*BITS, "#"), lambda w: w[::-1]),
    FlareLanguage(
        "unmarked-reversal",
        "w w reversed",
        BITS,
        _even,
        _reversal,
        _is_reversal,
        lambda string: _with_ends(string, frozenset({0, 1}), 2, _is_reversal),
        (0, 0),
        lambda string: _even(len(string)),
        log_conditional=lambda string: -(len(string) // 2) * math.log(2),
    ),
    marked("marked-copy", "w # w", (*BITS, "#"), lambda w: w),
    FlareLanguage(
        "missing-duplicate-string",
        "w w, in which _ stands for one of the ones",
        (*BITS, "_"),
        lambda length: length >= 2 and _even(length),
        _missing_duplicate,
        _is_missing_duplicate,
        _next_in_missing_duplicate,
        (0, 0, 1),
        _one_missing,
    ),
    marked(
        "odds-first", "w # the symbols of w at odd places, then the others", (*BITS, "#"), lambda w: w[::2] + w[1::2]
    ),
    marked("bucket-sort", "w # the symbols of w in order", ("1", "2", "3", "4", "5", "#"), lambda w: tuple(sorted(w))),
)

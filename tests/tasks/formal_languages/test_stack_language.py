"""The stack language: validity, probabilities and dependencies."""

import itertools
import math

import numpy as np
import pytest

from structattn.support.seeds import numpy_generator
from structattn.tasks.formal_languages.registry import formal_language
from structattn.tasks.formal_languages.stack_language import dependencies

LANGUAGE = formal_language("stack-language")


def indices(text):
    return np.array([LANGUAGE.alphabet.index(symbol) for symbol in text], dtype=np.int64)


def probability(text):
    """Return the probability by the definition, symbol by symbol; 0 outside the language."""
    level, result = 0, 1.0
    for symbol in text:
        allowed = [str(level)] + ["("] * (level < 4) + [")"] * (level > 0)
        if symbol not in allowed:
            return 0.0
        result /= len(allowed)
        level += {"(": 1, ")": -1}.get(symbol, 0)
    return result


@pytest.mark.parametrize("length", range(6))
def test_probabilities_are_those_of_the_definition(length):
    texts = ["".join(symbols) for symbols in itertools.product(LANGUAGE.alphabet, repeat=length)]
    found = np.exp(LANGUAGE.log_probabilities([indices(text) for text in texts]))
    assert found == pytest.approx([probability(text) for text in texts])
    assert found.sum() == pytest.approx(1)


def test_depth_is_limited():
    assert LANGUAGE.log_probabilities([indices("((((("), indices("((((4))))0"), indices(")")]).tolist()[::2] == [
        -math.inf,
        -math.inf,
    ]


def test_samples_are_valid_and_match_the_probabilities():
    strings = LANGUAGE.sample_each([4] * 20000, numpy_generator(1))
    texts, counts = np.unique(["".join(LANGUAGE.alphabet[i] for i in s) for s in strings], return_counts=True)
    expected = np.array([20000 * probability(text) for text in texts])
    everything = [probability("".join(s)) for s in itertools.product(LANGUAGE.alphabet, repeat=4)]
    cells = sum(p > 0 for p in everything)
    assert len(texts) == cells
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square <= (cells - 1) + 4 * math.sqrt(2 * (cells - 1))


def test_lengths_may_differ():
    strings = LANGUAGE.sample_each([3, 0, 30], numpy_generator(2))
    assert [len(string) for string in strings] == [3, 0, 30]
    assert np.isfinite(LANGUAGE.log_probabilities(strings)).all()


def test_dependencies_reach_back_to_the_last_digit():
    needed = dependencies(indices("0(1(("))
    assert [np.flatnonzero(row).tolist() for row in needed] == [[0], [0, 1], [2], [2, 3], [2, 3, 4]]
    assert np.flatnonzero(dependencies(indices("(("))[1]).tolist() == [0, 1]
    assert dependencies(indices("")).shape == (0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_the_dependencies_determine_the_next_symbol(seed):
    (string,) = LANGUAGE.sample_each([20], numpy_generator(seed))
    level = np.cumsum((string == 5).astype(int) - (string == 6))
    for t, row in enumerate(dependencies(string)):
        span = string[row]
        start = int(span[0]) if span[0] <= 4 else (1 if span[0] == 5 else -1)
        assert start + sum((s == 5) - int(s == 6) for s in span[1:]) == level[t]

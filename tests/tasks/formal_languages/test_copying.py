"""The copying languages against independent recognizers."""

import itertools
import math
import re

import numpy as np
import pytest

from structattn.metrics.statistics import lower_bound
from structattn.support.errors import UsageError
from structattn.support.seeds import numpy_generator
from structattn.tasks.formal_languages.copying import COPYING_LANGUAGES
from structattn.tasks.formal_languages.registry import formal_language

SWAP = str.maketrans("01", "23")
RECOGNISERS = {
    "count-3": lambda s: any(s == "a" * n + "b" * n + "c" * n for n in range(len(s) + 1)),
    "marked-copy": lambda s: bool(re.fullmatch(r"([01]*)#\1", s)),
    "unmarked-copy": lambda s: bool(re.fullmatch(r"([01]*)\1", s)),
    "unmarked-copy-different-alphabets": lambda s: any(
        re.fullmatch("[01]*", s[:n]) and s[:n].translate(SWAP) == s[n:] for n in range(len(s) + 1)
    ),
    "marked-reverse-and-copy": lambda s: (
        bool(re.fullmatch(r"([01]*)#[01]*#\1", s)) and s.split("#")[1] == s.split("#")[0][::-1]
    ),
    "unmarked-reverse-and-copy": lambda s: (
        bool(re.fullmatch("[01]*", s))
        and len(s) % 3 == 0
        and s[: len(s) // 3] == s[len(s) // 3 : 2 * len(s) // 3][::-1] == s[2 * len(s) // 3 :]
    ),
    "count-and-copy": lambda s: (
        bool(re.fullmatch(r"([01]*)#*\1", s)) and s.count("#") * 3 == len(s) and not re.search("#[01]+#", s)
    ),
}
NAMES = list(RECOGNISERS)


def text(language, string):
    return "".join(language.alphabet[index] for index in string)


def test_all_seven_languages_exist():
    assert set(COPYING_LANGUAGES) == set(RECOGNISERS)


@pytest.mark.parametrize("name", NAMES)
def test_membership_and_counts_agree_with_the_recognizer(name):
    language = formal_language(name)
    for length in range(8 if len(language.alphabet) < 4 else 7):
        strings = list(itertools.product(range(len(language.alphabet)), repeat=length))
        found = language.log_probabilities([np.array(string, dtype=np.int64) for string in strings])
        members = [RECOGNISERS[name](text(language, string)) for string in strings]
        assert (found > -np.inf).tolist() == members
        assert (length in language.valid_lengths(0, 7)) == any(members)
        if any(members):
            assert np.exp(found).sum() == pytest.approx(1)
            assert language.log_length_probability(length) == 0
        else:
            assert language.log_length_probability(length) == -math.inf


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_members_and_equally_frequent(name):
    language, generator = formal_language(name), numpy_generator(1, name)
    length = next(iter(language.valid_lengths(8, 12)))
    strings = language.sample_each([length] * 4000, generator)
    texts = [text(language, string) for string in strings]
    assert all(RECOGNISERS[name](string) for string in texts)
    _, counts = np.unique(texts, return_counts=True)
    cells = round(math.exp(language.log_count(length)))
    expected = 4000 / cells
    chi_square = (((counts - expected) ** 2) / expected).sum() + (cells - len(counts)) * expected
    freedom = cells - 1
    assert chi_square <= freedom + 4 * math.sqrt(2 * freedom) + 4  # far in the tail of its distribution


@pytest.mark.parametrize("name", NAMES)
def test_each_string_has_the_requested_length(name):
    language = formal_language(name)
    lengths = language.valid_lengths(40, 60) * 2
    assert [len(string) for string in language.sample_each(lengths, numpy_generator(2))] == lengths
    wrong = next(length for length in range(50) if not language.valid_lengths(length, length))
    with pytest.raises(ValueError, match=f"{name} has no string of length {wrong}$"):
        language.sample_each([wrong], numpy_generator(2))


def test_the_bound_is_that_of_the_closed_form():
    language = formal_language("marked-copy")
    lengths = np.array(language.valid_lengths(40, 80))
    strings = language.sample_each(lengths, numpy_generator(3))
    bound = lower_bound(language.log_probabilities(strings), lengths, len(lengths))
    total = sum((length - 1) / 2 * math.log(2) + math.log(20) for length in range(41, 80, 2))
    assert bound == pytest.approx(total / sum(length + 1 for length in range(41, 80, 2)))


def test_negative_lengths_are_rejected():
    with pytest.raises(ValueError, match="length is -1"):
        formal_language("count-3").log_length_probability(-1)
    with pytest.raises(ValueError, match="lengths 3 to 2"):
        formal_language("count-3").valid_lengths(3, 2)


def test_an_unknown_language_is_rejected_with_all_names():
    with pytest.raises(UsageError, match=r"count-4.*count-3.*stack-language"):
        formal_language("count-4")

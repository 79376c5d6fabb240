"""Samples are in the language, by an independent recognizer, and their frequencies match the probabilities."""

import math
from functools import reduce

import numpy as np
import pytest

from structattn.support.errors import UsageError
from structattn.support.seeds import numpy_generator
from structattn.tasks.formal_languages.registry import FORMAL_LANGUAGES, formal_language


def text(language, string):
    return "".join(language.alphabet[index] for index in string)


def is_marked_reversal(string):
    return string.count("#") == 1 and string == string[::-1] and len(string) % 2 == 1


def is_unmarked_reversal(string):
    return len(string) % 2 == 0 and string == string[::-1]


def is_padded_reversal(string):
    outer = 0
    while outer < len(string) // 2 and string[outer] == string[-1 - outer]:
        outer += 1
    return any(len(set(string[cut : len(string) - cut])) <= 1 for cut in range(outer + 1))


def after_bracket(stack, symbol):
    """The stack of open brackets after one more symbol, or None."""
    if stack is None or symbol in "([":
        return None if stack is None else stack + symbol
    return stack[:-1] if stack and stack[-1] + symbol in {"()", "[]"} else None


def is_dyck(string):
    return bool(string) and reduce(after_bracket, string, "") == ""


def is_hardest(string):
    """Keep, field by field, all stacks that some pick of one alternative of each field so far leads to."""
    *fields, rest = string.split(";")
    stacks = {("", False)}  # with whether a bracket was read
    for number, field in enumerate(fields):
        _, *middle, _ = field.split(",") if "," in field else ("", "")
        if rest or not middle:
            return False
        stacks = {
            (after, seen or bool(brackets))
            for index, picked in enumerate(middle)
            if all(middle[:index] + middle[index + 1 :]) and picked and picked.startswith("$") == (number == 0)
            for brackets in [picked[number == 0 :]]
            if "$" not in brackets
            for stack, seen in stacks
            if (after := reduce(after_bracket, brackets, stack)) is not None
        }
    return ("", True) in stacks


RECOGNISERS = {
    "marked-reversal": is_marked_reversal,
    "unmarked-reversal": is_unmarked_reversal,
    "padded-reversal": is_padded_reversal,
    "dyck": is_dyck,
    "hardest-cfl": is_hardest,
}


def test_all_samples_are_in_the_language(name, variant):
    language, generator = formal_language(name, variant), numpy_generator(1, name, variant)
    lengths = np.repeat(language.valid_lengths(1, 100), 10)
    strings = language.sample_each(lengths, generator)
    assert [len(string) for string in strings] == lengths.tolist()
    assert all(RECOGNISERS[name](text(language, string)) for string in strings)


def test_the_probability_is_zero_exactly_outside_the_language(name):
    language, generator = formal_language(name), numpy_generator(2, name)
    strings = language.sample_each(np.repeat(language.valid_lengths(6, 24), 20), generator)
    for string in strings:  # change up to two symbols
        string[generator.integers(len(string), size=2)] = generator.integers(len(language.alphabet), size=2)
    found = language.log_probabilities(strings) > -math.inf
    expected = [RECOGNISERS[name](text(language, string)) for string in strings]
    assert found.tolist() == expected
    assert 0 < sum(expected) < len(expected)


def chi_square_excess(language, strings, probabilities):
    """(chi-square - degrees of freedom) in standard deviations; rare strings are put into one class."""
    counts = dict.fromkeys(probabilities, 0)
    for string in strings:
        counts[text(language, string)] += 1
    expected = np.array(list(probabilities.values())) * len(strings) / sum(probabilities.values())
    observed = np.array(list(counts.values()))
    rare = expected < 10
    expected = np.append(expected[~rare], expected[rare].sum())
    observed = np.append(observed[~rare], observed[rare].sum())
    expected, observed = expected[expected > 0], observed[expected > 0]
    freedom = len(expected) - 1
    assert freedom > 0
    return (((observed - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


def test_sample_frequencies_match_the_probabilities(name, variant, judge):
    language = formal_language(name, variant)
    for length in language.valid_lengths(6, 9):
        probabilities = {string: float(p) for string, p in judge.all_strings(length).items()}
        strings = language.sample(length, 20_000, numpy_generator(4, name, variant, length))
        assert abs(chi_square_excess(language, strings, probabilities)) < 4


def test_the_frequency_test_detects_a_wrong_distribution(judge_of):
    language = formal_language("hardest-cfl")
    wrong = {string: float(p) for string, p in judge_of("hardest-cfl", "faithful").all_strings(8).items()}
    wrong[max(wrong, key=wrong.get)] *= 2
    strings = language.sample(8, 20_000, numpy_generator(4, "hardest-cfl", "faithful", 8))
    assert chi_square_excess(language, strings, wrong) > 4


@pytest.mark.parametrize(("length", "mass"), [(40, 0.798), (80, 0.771)])
def test_most_faithful_dyck_strings_have_one_outer_pair(length, mass):
    def is_one_pair(string):
        depths = np.cumsum(np.where(string % 2 == 0, 1, -1))
        return bool((depths[:-1] > 0).all())

    for variant, expected in (("faithful", mass), ("reference", 0.0)):
        strings = formal_language("dyck", variant).sample(length, 5000, numpy_generator(5, length))
        share = np.mean([is_one_pair(string) for string in strings])
        assert share == pytest.approx(expected, abs=4 * math.sqrt(expected * (1 - expected) / 5000))


def test_mixed_lengths_have_the_same_distribution():
    language = formal_language("unmarked-reversal")
    strings = language.sample_each(np.tile([4, 0, 2], 4000), numpy_generator(6))
    four = np.array(strings[::3])
    assert {len(string) for string in strings[1::3]} == {0}
    counts = np.bincount(four[:, 0] * 2 + four[:, 1], minlength=4)
    assert np.abs(counts - 1000).max() < 4 * math.sqrt(4000 * 3 / 16)


def test_the_same_seed_gives_the_same_strings(name, variant):
    language = formal_language(name, variant)
    length = language.valid_lengths(30, 31)[0]
    first, again, other = (
        formal_language(name, variant).sample(length, 20, numpy_generator(seed)) for seed in (1, 1, 2)
    )
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_samples_do_not_depend_on_earlier_calls():
    fresh, used = formal_language("hardest-cfl"), formal_language("hardest-cfl")
    used.valid_lengths(0, 100)
    used.sample(70, 3, numpy_generator(1))
    assert fresh.sample(20, 50, numpy_generator(2)).tolist() == used.sample(20, 50, numpy_generator(2)).tolist()


def test_empty_batches_and_empty_strings():
    language = formal_language("unmarked-reversal")
    assert language.sample(6, 0, numpy_generator(1)).shape == (0, 6)
    assert language.sample(0, 3, numpy_generator(1)).shape == (3, 0)
    assert language.sample_each([], numpy_generator(1)) == []


def test_impossible_lengths_are_not_sampled():
    with pytest.raises(ValueError, match=r"dyck \(variant reference\) has no string of length 2"):
        formal_language("dyck", "reference").sample(2, 1, numpy_generator(1))
    with pytest.raises(ValueError, match="no string of length 41"):
        formal_language("dyck").sample_each([40, 41], numpy_generator(1))
    with pytest.raises(ValueError, match="count is -1"):
        formal_language("dyck").sample(2, -1, numpy_generator(1))


def test_unknown_names_are_rejected_with_the_known_ones():
    with pytest.raises(UsageError, match=r"'dick'.*marked-reversal, .*hardest-cfl"):
        formal_language("dick")
    with pytest.raises(UsageError, match=r"'exact'.*faithful, reference"):
        formal_language("dyck", "exact")
    assert all(
        repr(formal_language(name)) == f"formal_language('{name}', 'faithful')" for name in list(FORMAL_LANGUAGES)[:5]
    )

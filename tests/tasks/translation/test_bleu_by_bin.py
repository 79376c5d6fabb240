"""BLEU by bin of sentences equals sacrebleu's on those sentences; intervals contain the difference."""

import itertools
import random

import numpy as np
import pytest

from structattn.metrics.translation import bleu_statistics, corpus_scores
from structattn.tasks.translation.compare import differences_by_bin, equal_count_bins, equal_width_bins

WORDS = ["the", "a", "cat", ",", "dog", "sees", "runs", "-", "house", ".", "green"]


def lines(count, seed, shortest=0):
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(shortest, shortest + 12))) for _ in range(count)]


def garbled(references, seed):
    """Return the lines with a quarter of the words replaced at random."""
    generator = random.Random(seed)
    return [
        " ".join(generator.choice(WORDS) if generator.random() < 0.25 else word for word in line.split())
        for line in references
    ]


def bleu(hypotheses, references):
    return corpus_scores(hypotheses, references)["BLEU"].value


@pytest.mark.parametrize("hypotheses", [garbled(lines(60, 1), 5), lines(60, 3), [""] * 60])
def test_bleu_from_counts_equals_bleu_of_the_lines(hypotheses):
    references = lines(60, 1)
    statistics = bleu_statistics(hypotheses, references)
    weights = np.random.default_rng(1).integers(0, 3, 60)
    repeated = [
        [line for line, times in zip(side, weights, strict=True) for _ in range(times)]
        for side in (hypotheses, references)
    ]
    assert statistics.bleu(weights) == pytest.approx(bleu(*repeated))
    assert statistics.resampled(np.stack([weights, weights])) == pytest.approx([bleu(*repeated)] * 2)
    with pytest.raises(ValueError, match="zip"):
        bleu_statistics(hypotheses[1:], references)


def test_bins_of_equal_count():
    values = np.random.default_rng(2).permutation(23.0 * np.arange(23))
    bins = equal_count_bins(values)
    assert sorted(len(each.members) for each in bins) == [4, 4, 5, 5, 5]
    assert sorted(np.concatenate([each.members for each in bins])) == list(range(23))
    assert all(before.high < after.low for before, after in itertools.pairwise(bins))
    for each in bins:
        assert (values[each.members].min(), values[each.members].max()) == (each.low, each.high)


def test_equal_values_share_a_bin_and_empty_bins_are_dropped():
    values = np.array([0.0] * 7 + [1.0, 2.0, 9.0])
    bins = equal_count_bins(values)
    assert [(each.low, each.high, len(each.members)) for each in bins] == [(0, 0, 7), (1, 1, 1), (2, 9, 2)]
    assert [len(each.members) for each in equal_width_bins(values)] == [8, 1, 1]
    assert [len(each.members) for each in equal_width_bins(np.ones(4))] == [4]
    assert equal_count_bins(np.empty(0)) == equal_width_bins(np.empty(0)) == []


def test_bins_of_equal_width():
    values = np.linspace(3, 8, 101)
    assert [each.high for each in equal_width_bins(values)] == pytest.approx([4, 5, 6, 7, 8])


def test_differences_are_those_of_the_lines_in_each_bin():
    references = lines(100, 1, shortest=6)
    base, other = garbled(references, 5), references
    numbers = {"encoder": np.random.default_rng(1).random(100)}
    found = differences_by_bin(base, other, references, numbers, samples=50)
    assert [(each.attribute, each.binning) for each in found[::5]] == [
        ("reference length", "equal count"), ("encoder", "equal count"), ("encoder", "equal width")]  # fmt: skip
    lengths = np.array([len(line.split()) for line in references])
    for each in found:
        values = lengths if each.attribute == "reference length" else numbers["encoder"]
        inside = [index for index in range(100) if each.low <= values[index] <= each.high]
        assert each.sentences == len(inside)
        chosen = [[side[index] for index in inside] for side in (base, other, references)]
        assert each.base == pytest.approx(bleu(chosen[0], chosen[2]))
        assert each.other == pytest.approx(bleu(chosen[1], chosen[2]))
        assert each.difference == each.other - each.base
        assert 0 < each.lower < each.difference < each.upper


def test_equal_systems_do_not_differ_and_values_are_one_per_sentence():
    references = lines(30, 1)
    base = garbled(references, 5)
    assert {(each.lower, each.difference, each.upper) for each in differences_by_bin(base, base, references)} == {
        (0, 0, 0)
    }
    with pytest.raises(ValueError, match="encoder: 2 numbers for 30 sentences"):
        differences_by_bin(base, base, references, {"encoder": np.ones(2)})

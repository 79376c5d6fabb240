"""Trivial rules: neighbours, and counts against the equations that they stand for, on all short strings."""

import itertools

import pytest

from structattn.support.seeds import numpy_generator
from structattn.tasks.recognition.counts import Counts, Lattice
from structattn.tasks.recognition.registry import recognition_language
from structattn.tasks.recognition.rules import Neighbours, all_of


def test_neighbours():
    rule = Neighbours.of([(0, 1), (1, 1, 0, 1)])
    assert [rule(string) for string in ((0, 1), (1, 1, 1), (0, 0, 1), (1, 0), ())] == [True, True, False, False, False]


def test_all_of_some_rules():
    rule = all_of([lambda string: len(string) > 1, lambda string: 0 in string])
    assert [rule(string) for string in ((0,), (1, 1), (0, 1))] == [False, False, True]
    assert all_of([])((3,))


def reversal(string):
    """In ww^R each symbol is as often at odd as at even places."""
    return all(string[::2].count(symbol) == string[1::2].count(symbol) for symbol in range(2))


def marked_reversal(string):
    """In w#w^R letters at odd and at even positions are even in number; # is an even distance off the middle."""
    if string.count(2) != 1 or len(string) % 2 == 0:
        return False
    even = all(string[start::2].count(letter) % 2 == 0 for start in range(2) for letter in range(2))
    return even and (string.index(2) - len(string) // 2) % 2 == 0


def brackets(string):
    """In Dyck languages a bracket opens as often at odd positions as it closes at even ones, and vice versa."""
    return all(
        string[start::2].count(opening) == string[1 - start :: 2].count(closing)
        for start in range(2)
        for opening, closing in ((0, 1), (2, 3))
    )


@pytest.mark.parametrize(
    ("name", "condition", "longest"),
    [("unmarked-reversal", reversal, 10), ("marked-reversal", marked_reversal, 9), ("dyck-2-3", brackets, 6)],
)
def test_counts_are_the_equations_of_a_language(name, condition, longest):
    language = recognition_language(name)
    lengths = language.valid_lengths(0, 20) * 100
    rule = Counts(language.sample_each(lengths, numpy_generator(1)), len(language.alphabet))
    size = len(language.alphabet)
    every = [string for length in range(longest + 1) for string in itertools.product(range(size), repeat=length)]
    assert [string for string in every if rule(string)] == [string for string in every if condition(string)]


def test_counts_without_members_accept_nothing():
    assert not Counts([], 2)(())
    assert Counts([()], 2)(())
    assert not Counts([()], 2)((0,))


@pytest.mark.parametrize("seed", range(12))
def test_a_lattice_holds_the_sums_of_its_vectors_and_nothing_else(seed):
    generator = numpy_generator(seed)
    vectors = generator.integers(-3, 4, (int(generator.integers(1, 4)), 3)).tolist()
    sums = {
        tuple(
            sum(factor * vector[place] for factor, vector in zip(factors, vectors, strict=True)) for place in range(3)
        )
        for factors in itertools.product(range(-16, 17), repeat=len(vectors))
    }
    lattice = Lattice(vectors)
    near = list(itertools.product(range(-2, 3), repeat=3))
    assert [each for each in near if [*each] in lattice] == [each for each in near if each in sums]

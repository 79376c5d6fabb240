"""Expected lengths, against closed forms and spectral radii."""

from fractions import Fraction

import numpy as np
import pytest

from structattn.support.seeds import numpy_generator
from structattn.tasks.formal_languages.expected_length import expected_length, fastest_growth, has_expected_length
from structattn.tasks.formal_languages.grammar import Grammar, rule
from structattn.tasks.formal_languages.registry import GRAMMARS

F = Fraction


def binary(p):
    return Grammar("S", ("a",), (rule("S", "S S", p), rule("S", "a", 1 - p)))


def test_means_of_the_papers():
    assert expected_length(GRAMMARS["marked-reversal"]()) == pytest.approx(121)
    assert expected_length(GRAMMARS["padded-reversal"]()) == pytest.approx(150)


@pytest.mark.parametrize("p", [F(1, 3), F(4999, 10000)])
def test_a_binary_branching_process(p):
    """The expected number n of leaves is 2 p n + (1 - p)."""
    assert has_expected_length(binary(p))
    assert expected_length(binary(p)) == pytest.approx(float((1 - p) / (1 - 2 * p)))


@pytest.mark.parametrize(("p", "rate"), [(F(1, 2), 1), (F(3, 5), 1.2), (F(1, 2) + F(1, 10**20), 1)])
def test_a_critical_process_has_none(p, rate):
    assert not has_expected_length(binary(p))
    assert fastest_growth(binary(p)) == (["S"], pytest.approx(rate))


def test_dyck_and_the_hardest_language_of_the_papers_have_none():
    assert [name for name, make in GRAMMARS.items() if not has_expected_length(make())] == ["dyck", "hardest-cfl"]


def test_it_exists_where_the_spectral_radius_is_below_one():
    generator, seen = numpy_generator(1, "radius"), {True: 0, False: 0}
    for _ in range(200):
        size = int(generator.integers(1, 5))
        numbers = generator.integers(0, 4, (size, size)) * (generator.random((size, size)) < 0.5)
        rules = [
            rule(f"N{i}", " ".join(["a", *(f"N{j}" for j in range(size) for _ in range(numbers[i, j]))]), F(1, 3))
            for i in range(size)
        ]
        rules += [rule(f"N{i}", "a", F(2, 3)) for i in range(size)]
        grammar, radius = Grammar("N0", ("a",), tuple(rules)), np.abs(np.linalg.eigvals(numbers / 3)).max()
        if abs(radius - 1) > 1e-9:
            assert has_expected_length(grammar) == (radius < 1)
            assert fastest_growth(grammar)[1] == pytest.approx(radius, abs=1e-6)
            seen[bool(radius < 1)] += 1
    assert min(seen.values()) > 30

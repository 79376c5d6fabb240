"""Nearest neighbours and agreement of classes, against loops over all pairs."""

import numpy as np
import pytest

from structattn.metrics.neighbours import class_agreement, nearest_neighbours


def cosine(a, b):
    product = np.linalg.norm(a) * np.linalg.norm(b)
    return 0.0 if product == 0 else float(a @ b / product)


def test_neighbours_are_those_of_all_pairs():
    vectors = np.random.default_rng(1).normal(size=(40, 5))
    vectors[3] = 0
    found, similarities = nearest_neighbours(vectors, np.array([0, 3, 39]), 4)
    for row, query in enumerate([0, 3, 39]):
        others = sorted((-cosine(vectors[query], vectors[n]), n) for n in range(40) if n != query)
        assert found[row].tolist() == [n for _, n in others[:4]]
        np.testing.assert_allclose(similarities[row], [-value for value, _ in others[:4]], atol=1e-12)


@pytest.mark.parametrize(("dtype", "scale"), [("float16", 300), ("float32", 1e20), ("float32", 1e-25)])
def test_squares_outside_the_range_of_the_dtype_change_nothing(dtype, scale):
    vectors = np.array([[1, 0], [0, 1], [1, 0.1], [0, 0]])
    expected = nearest_neighbours(vectors, np.array([0]), 3)
    found = nearest_neighbours((vectors * scale).astype(dtype), np.array([0]), 3)
    assert found[0].tolist() == expected[0].tolist() == [[2, 1, 3]]
    np.testing.assert_allclose(found[1], expected[1], atol=2e-3)


def test_fewer_vectors_than_neighbours_and_no_queries():
    vectors = np.eye(3)
    assert nearest_neighbours(vectors, np.array([1]), 10)[0].tolist() == [[0, 2]]
    assert nearest_neighbours(vectors, np.array([], int), 2)[0].shape == (0, 2)


def test_agreement_of_two_clusters():
    vectors = np.array([[1, 0], [1, 0.1], [1, -0.1], [0, 1], [0.1, 1]])
    found = class_agreement(vectors, ["N", "N", "V", "V", "V"], 1)
    assert (found.count, found.value) == (
        5,
        pytest.approx(4 / 5),
    )  # only the neighbour of 2, which is 0, has another class
    assert found.chance == pytest.approx((2 * 1 + 3 * 2) / (5 * 4))
    with pytest.raises(ValueError, match="5 vectors with 1 classes"):
        class_agreement(vectors, ["N"])


def test_chance_is_the_mean_over_random_neighbours():
    generator = np.random.default_rng(2)
    classes = generator.choice(["a", "b", "c"], 60, p=[0.6, 0.3, 0.1]).tolist()
    values = [class_agreement(generator.normal(size=(60, 40)), classes, 10).value for _ in range(60)]
    assert np.mean(values) == pytest.approx(class_agreement(np.eye(60), classes).chance, abs=0.02)

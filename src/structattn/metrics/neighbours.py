"""Nearest neighbours by cosine similarity, and how often they share a class."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from structattn.support.shapes import Float, Int

_ROWS = 1024  # queries at once


@dataclass(frozen=True)
class Agreement:
    """How often neighbours share the class of a vector.

    Args:
        count: the number of vectors.
        value: the mean, over the vectors, of the fraction of their neighbours with the same class.
        chance: the same for neighbours that are drawn at random from the other vectors.
    """

    count: int
    value: float
    chance: float


def nearest_neighbours(
    vectors: Float[np.ndarray, "words d_model"], queries: Int[np.ndarray, " queries"], count: int
) -> tuple[Int[np.ndarray, "queries neighbours"], Float[np.ndarray, "queries neighbours"]]:
    """Return the nearest other vectors of some of the vectors by cosine similarity.

    Args:
        vectors: what is compared; the similarity of a zero vector with any other is 0.
        queries: indices of vectors.
        count: the number of neighbours; all other vectors if there are fewer.

    Returns:
        Indices and similarities, the most similar first, of equally similar ones the one with the lowest index.

    Cost: O(queries words d_model) time, memory for 1,024 rows of similarities.
    """
    largest = np.abs(vectors).max(1, keepdims=True, initial=0)
    scaled = vectors / np.where(largest == 0, 1, largest)  # whose squares do not leave the range of the dtype
    unit = scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1)  # below 1 for zero vectors alone
    parts = [_nearest(unit, queries[start : start + _ROWS], count) for start in range(0, len(queries), _ROWS)]
    indices = [each for each, _ in parts] or [np.zeros((0, min(count, len(vectors) - 1)), np.int64)]
    similarities = [each for _, each in parts] or [np.zeros(indices[0].shape, vectors.dtype)]
    return np.concatenate(indices), np.concatenate(similarities)


def _nearest(
    unit: Float[np.ndarray, "words d_model"], queries: Int[np.ndarray, " queries"], count: int
) -> tuple[Int[np.ndarray, "queries neighbours"], Float[np.ndarray, "queries neighbours"]]:
    similarities = unit[queries] @ unit.T
    similarities[np.arange(len(queries)), queries] = -np.inf
    order = np.argsort(-similarities, axis=1, kind="stable")[:, : min(count, len(unit) - 1)]
    return order, np.take_along_axis(similarities, order, axis=1)


def class_agreement(
    vectors: Float[np.ndarray, "words d_model"], classes: Sequence[str], num_neighbours: int = 10
) -> Agreement:
    """Return how often the nearest neighbours of vectors have their class.

    Raises:
        ValueError: there are fewer than two vectors, or not one class for each.
    """
    if len(vectors) != len(classes) or len(classes) < 2:
        raise ValueError(f"{len(vectors)} vectors with {len(classes)} classes; expected equally many, at least two")
    _, ids, counts = np.unique(np.array(classes), return_inverse=True, return_counts=True)
    neighbours, _ = nearest_neighbours(vectors, np.arange(len(vectors)), num_neighbours)
    same = float((ids[neighbours] == ids[:, None]).mean())
    chance = float((counts[ids] - 1).sum() / (len(ids) * (len(ids) - 1)))
    return Agreement(len(ids), same, chance)

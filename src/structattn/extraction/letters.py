"""Letters: the kinds of steps that a stack takes on each symbol, found by clustering the weights of its transitions."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from structattn.extraction.observations import Replacement
from structattn.extraction.stacks import Observation, StackReader
from structattn.support.shapes import Float, Int
from structattn.support.special_tokens import PAD

GRANULARITIES = ((1.0, 1), (0.8, 4), (0.6, 4), (0.2, 2), (0.2, 3), (0.2, 4))
"""Silhouettes above which a cluster is split, and the most letters of a symbol, from few letters to many."""
LOWEST = -12.0
"""Log-weights are clipped here for clusters, so that what is hardly possible does not decide; means are not."""
MIN_DISTANCE = 1.0
"""Nats by which some log-weight must differ between the centres of two clusters."""
MAX_POINTS = 400  # of which a silhouette is computed
SAME_VECTOR = 0.15
Points = Float[np.ndarray, "points weights"]


@dataclass(frozen=True)
class Letters:
    """The letters of all symbols, numbered from 0, and the mean weights and pushed vectors of each.

    Args:
        of_symbol: id of a symbol, ``<bos>`` included -> its letters.
        centres: the mean features of each letter, clipped.
        features: the same, not clipped.
        values: the mean outputs of the projection that say what is pushed.
        vectors: the class of the pushed vector of each letter: those whose means are close share one.
    """

    of_symbol: Mapping[int, tuple[int, ...]]
    centres: Float[np.ndarray, "letters weights"]
    features: Float[np.ndarray, "letters weights"]
    values: Float[np.ndarray, "letters vector"]
    vectors: tuple[int, ...]

    @property
    def num_vectors(self) -> int:
        """The number of classes of vectors."""
        return len(set(self.vectors))

    def symbol_of(self, letter: int) -> int:
        """Return the id of the symbol of a letter."""
        return next(symbol for symbol, letters in self.of_symbol.items() if letter in letters)

    def read(self, ids: Int[np.ndarray, " time"], features: Float[np.ndarray, "time weights"]) -> list[int]:
        """Return the nearest letter of the symbol at each step; <pad> gets any letter.

        Raises:
            KeyError: a symbol has no letters.
        """
        everything = tuple(range(len(self.features)))
        found = []
        for symbol, point in zip(ids.tolist(), features.clip(LOWEST), strict=True):
            letters = everything if symbol == PAD else self.of_symbol[symbol]
            distances = ((self.centres[list(letters)] - point) ** 2).sum(1)
            found.append(letters[int(distances.argmin())])
        return found

    def read_batch(self, ids: Tensor, features: Tensor) -> Int[Tensor, "batch time"]:
        """Return the letters of a batch, as ``read`` does; <pad> gets any letter."""
        distances = torch.cdist(features.double().cpu().clamp(LOWEST), torch.from_numpy(self.centres)[None])
        for symbol, letters in self.of_symbol.items():
            others = [each for each in range(len(self.features)) if each not in letters]
            here = (ids.cpu() == symbol)[..., None].expand(-1, -1, len(others))
            distances[..., others] = distances[..., others].masked_fill(here, torch.inf)
        return distances.argmin(-1).to(ids.device)

    def class_means(self) -> Float[np.ndarray, "letters vector"]:
        """Return the mean values of the class of each letter."""
        vectors = np.array(self.vectors)
        return np.stack([self.values[vectors == each].mean(0) for each in self.vectors])


def covering(observations: Sequence[Observation], others: Sequence[Observation]) -> list[Observation]:
    """Return the observations, and those of the others that have symbols which these lack."""
    known = set[int]().union(*(each.ids.tolist() for each in observations))
    return [*observations, *(each for each in others if not known.issuperset(each.ids.tolist()))]


def find_letters(
    reader: StackReader, observations: Sequence[Observation], silhouette: float = 0.6, most: int = 4
) -> Letters:
    """Cluster the steps on each symbol: a cluster is split in two where the split has a silhouette above a limit.

    Args:
        reader: of the stack.
        observations: of strings with all symbols that will be read.
        silhouette: the limit, from 0 to 1; a lower one gives more letters.
        most: the maximal number of letters of a symbol.
    """
    ids = np.concatenate([each.ids for each in observations])
    features = np.concatenate([each.features for each in observations])
    values = np.concatenate([each.values for each in observations])
    clipped = features.clip(LOWEST)
    of_symbol: dict[int, tuple[int, ...]] = {}
    members: list[np.ndarray] = []
    for symbol in np.unique(ids).tolist():
        clusters = _clusters(clipped, np.flatnonzero(ids == symbol), silhouette, most)
        of_symbol[symbol] = tuple(range(len(members), len(members) + len(clusters)))
        members += clusters
    means = np.stack([values[each].mean(0) for each in members])
    pushed = np.stack([reader.pushed(torch.from_numpy(values[each])).mean(0).numpy() for each in members])
    centres, unclipped = (np.stack([points[each].mean(0) for each in members]) for points in (clipped, features))
    return Letters(of_symbol, centres, unclipped, means, _close(pushed))


def letters_of_granularities(reader: StackReader, observations: Sequence[Observation]) -> Iterator[Letters]:
    """Yield the letters of the granularities, from few to many, each number of letters once."""
    known = set[int]()
    for granularity in GRANULARITIES:
        letters = find_letters(reader, observations, *granularity)
        if len(letters.features) not in known:
            known.add(len(letters.features))
            yield letters


def _clusters(features: Points, members: np.ndarray, limit: float, most: int) -> list[np.ndarray]:
    clusters = [members]
    while len(clusters) < most:
        splits = [(*_split(features[each]), index) for index, each in enumerate(clusters)]
        best, side, index = max(splits, key=lambda split: split[0])
        if best <= limit:
            break
        clusters[index : index + 1] = [clusters[index][~side], clusters[index][side]]
    return clusters


def _split(points: Points) -> tuple[float, np.ndarray]:
    """Return the silhouette of a division in two by 2-means, -1 if it is none, and the side of each point."""
    centres = points[[0, 0]].copy()
    centres[0] = points[((points - points.mean(0)) ** 2).sum(1).argmax()]
    centres[1] = points[((points - centres[0]) ** 2).sum(1).argmax()]
    side = np.zeros(len(points), dtype=bool)
    for _ in range(50):
        distances = ((points[:, None] - centres) ** 2).sum(2)
        new = distances[:, 1] < distances[:, 0]
        if new.all() or not new.any():
            return -1.0, new
        centres = np.stack([points[~new].mean(0), points[new].mean(0)])
        if (new == side).all():
            break
        side = new
    if np.abs(centres[0] - centres[1]).max() < MIN_DISTANCE:
        return -1.0, side
    return _silhouette(points, side), side


def _silhouette(points: Points, side: np.ndarray) -> float:
    """Return the mean over points, equally many of each side, of (b - a) / max(a, b).

    a and b are the mean distances from the points of the same and of the other side (Rousseeuw 1987).
    """
    chosen = np.concatenate([_spread(np.flatnonzero(side == value), MAX_POINTS // 2) for value in (False, True)])
    points, side = points[chosen], side[chosen]
    distances = np.sqrt(((points[:, None] - points) ** 2).sum(2))
    of_sides = []
    for value in (False, True):
        own, other = np.flatnonzero(side == value), np.flatnonzero(side != value)
        a = distances[np.ix_(own, own)].sum(1) / max(1, len(own) - 1)
        b = distances[np.ix_(own, other)].mean(1)
        of_sides.append(float(((b - a) / np.maximum(np.maximum(a, b), 1e-12)).mean()))
    return sum(of_sides) / 2


def _spread(indices: np.ndarray, count: int) -> np.ndarray:
    """Return at most ``count`` of the indices, evenly spread."""
    chosen: np.ndarray = indices[np.linspace(0, len(indices) - 1, min(count, len(indices))).astype(int)]
    return chosen


def _close(vectors: Float[np.ndarray, "letters vector"]) -> tuple[int, ...]:
    """Number the classes of vectors: those that differ by less than ``SAME_VECTOR`` in all coordinates share one."""
    classes = list(range(len(vectors)))
    for i, first in enumerate(vectors):
        for j in range(i):
            if np.abs(first - vectors[j]).max() < SAME_VECTOR:
                classes = [classes[j] if each == classes[i] else each for each in classes]
    order = {value: number for number, value in enumerate(dict.fromkeys(classes))}
    return tuple(order[each] for each in classes)


def ambiguous_share(letters: Letters, observations: Sequence[Observation]) -> float:
    """Return the share of steps whose letter is not the usual one after the letter before and the symbol."""
    counts = defaultdict[tuple[int, int], Counter[int]](Counter)
    for each in observations:
        read = letters.read(each.ids, each.features)
        for before, symbol, letter in zip(read, each.ids[1:].tolist(), read[1:], strict=False):
            counts[before, symbol][letter] += 1
    total = sum(images.total() for images in counts.values())
    return 1 - sum(max(images.values()) for images in counts.values()) / total if total else 0.0


def mean_weights(reader: StackReader, letters: Letters) -> Replacement:
    """Return what replaces the outputs of the projection by the means of each letter, and of its class of vectors."""
    means = np.concatenate([letters.features, letters.class_means()], 1)
    table = torch.from_numpy(means).float()
    table[:, : reader.sizes[0]] = reader.weights(table[:, : reader.sizes[0]])

    def replaced(ids: Tensor, output: Tensor) -> Tensor:
        return table.to(output)[letters.read_batch(ids, reader.features(output))]

    return replaced

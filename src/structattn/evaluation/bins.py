"""Sentences in bins by a number that each of them has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

Values = Float[np.ndarray, " sentences"]


@dataclass(frozen=True)
class Bin:
    """Some sentences.

    Args:
        low: the least of their numbers.
        high: the greatest.
        members: which they are.
    """

    low: float
    high: float
    members: NDArray[np.int64]


def equal_count_bins(values: Values, count: int = 5) -> list[Bin]:
    """Bins of as many sentences, cut at quantiles; equal numbers share a bin, and bins that are left empty vanish."""
    return _cut(values, np.quantile(values, np.arange(1, count) / count) if len(values) else values)


def equal_width_bins(values: Values, count: int = 5) -> list[Bin]:
    """Bins of the same width between the least and the greatest number; empty ones vanish."""
    return _cut(values, np.linspace(values.min(), values.max(), count + 1)[1:-1] if len(values) else values)


CUTS: Mapping[str, Callable[[Values], list[Bin]]] = MappingProxyType(
    {"equal count": equal_count_bins, "equal width": equal_width_bins}
)
"""Ways to cut by name."""


def _cut(values: Values, edges: NDArray[np.float64]) -> list[Bin]:
    """A number that is an edge belongs below it."""
    places = np.searchsorted(edges, values, side="left")
    found = [np.flatnonzero(places == place) for place in np.unique(places)]
    return [Bin(float(values[members].min()), float(values[members].max()), members) for members in found]

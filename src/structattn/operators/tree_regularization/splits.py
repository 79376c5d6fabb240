"""Greedy top-down trees from a table of the independence of spans."""

from collections.abc import Sequence

from torch import Tensor

from structattn.support.shapes import Float

Split = tuple[int, int, int]
"""First position of a span, last position of its left part, last position of the span."""


def greedy_splits(independence: Float[Tensor, "first last"], word_starts: Sequence[bool], length: int) -> list[Split]:
    """Return the best split of the whole, then those of both parts, down to words.

    Args:
        independence: o(i, j).
        word_starts: whether a word begins at each position.
        length: the number of positions.
    """
    table, splits, spans = independence.tolist(), [], [(0, length - 1)]
    while spans:
        i, j = spans.pop()
        places = [k for k in range(i, j) if word_starts[k + 1]]
        if places:
            best = max(places, key=lambda k: table[i][k] + table[k + 1][j] + table[k + 1][k + 1])
            splits.append((i, best, j))
            spans += [(best + 1, j), (i, best)]
    return splits

"""Constituency trees as the splits of binary trees, for ``tree_regularization``."""

from structattn.operators.tree_regularization.splits import Split
from structattn.tasks.parsing.trees import Leaf, Tree


def binary_splits(tree: Tree | Leaf, first: int = 0) -> list[Split]:
    """Return the splits of a tree in words, top-down: first position, last of the left part, last position.

    Constituents of more than two children branch to the right: the first child, then the others together. Labels and
    constituents of a single child have no part in it.

    Args:
        tree: the tree.
        first: the position of its first word.
    """
    return _splits(tree, first)[0]


def _splits(tree: Tree | Leaf, first: int) -> tuple[list[Split], int]:
    """Return the splits, and the position after the last word."""
    if isinstance(tree, Leaf):
        return [], first + 1
    own, below, end = [], [], first
    for child in tree.children:
        start = end
        inner, end = _splits(child, start)
        own.append((start, end - 1))
        below += inner
    return [(start, left, end - 1) for start, left in own[:-1]] + below, end

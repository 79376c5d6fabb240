"""Constituency trees, and the parts of the Penn Treebank's annotation that parsers do not predict."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Union

MAX_DEPTH: Final = 100
"""Trees are at most this deep, so that functions may recurse; those of natural language are below 50."""

TOP: Final = "TOP"
"""The label of a root that joins several constituents."""

TOP_LABELS: Final = frozenset({"", TOP, "ROOT", "S1"})
"""Labels of a root that has no meaning of its own."""

TRACE: Final = "-NONE-"
_FUNCTION = re.compile(r"(?<=.)[-=|].*")


@dataclass(frozen=True)
class Leaf:
    """A word with its part-of-speech tag."""

    tag: str
    word: str


@dataclass(frozen=True)
class Tree:
    """A constituent: its label and its children, at least one."""

    label: str
    children: tuple[Union["Tree", Leaf], ...]


def leaves_of(tree: Tree | Leaf) -> Iterator[Leaf]:
    """Yield the leaves from left to right."""
    if isinstance(tree, Leaf):
        yield tree
    else:
        for child in tree.children:
            yield from leaves_of(child)


def bracketed(tree: Tree | Leaf) -> str:
    """Return a tree as ``(S (NP (DT the) (NN cat)) (VP (VBD sat)))``."""
    if isinstance(tree, Leaf):
        return f"({tree.tag} {tree.word})"
    return f"({tree.label} {' '.join(map(bracketed, tree.children))})"


def simplify(tree: Tree) -> Tree | None:
    """Return a tree without traces, functions and an empty root; None if nothing is left.

    Leaves with the tag -NONE- and constituents of such leaves only are dropped; labels are cut at ``-``, ``=`` and
    ``|`` (``NP-SBJ-1`` becomes ``NP``). A root ``TOP``, ``ROOT``, ``S1`` or without label gives way to its only
    constituent, and is called ``TOP`` if it has several children.
    """
    found = _without_traces(tree)
    if not isinstance(found, Tree) or found.label not in TOP_LABELS:
        return found if isinstance(found, Tree) else None
    only = found.children[0] if len(found.children) == 1 else None
    return only if isinstance(only, Tree) else Tree(TOP, found.children)


def _without_traces(tree: Tree | Leaf) -> Tree | Leaf | None:
    if isinstance(tree, Leaf):
        return None if tree.tag == TRACE else tree
    children = tuple(kept for child in tree.children if (kept := _without_traces(child)) is not None)
    return Tree(_FUNCTION.sub("", tree.label), children) if children else None

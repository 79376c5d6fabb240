"""Treebanks: constituency trees, their bracketed and linearized forms, and the brackets that are scored.

- ``Tree``, ``Leaf``; ``read_trees`` reads bracketed trees strictly, ``simplify`` drops traces and functions.
- ``linearize`` and ``repair``: a tree as a sequence of symbols (``Tags``: with part-of-speech tags or without), and the
  tree of any sequence of symbols.
- ``brackets_of``: the brackets that evalb scores; ``branching_brackets``: baselines.
"""

from structattn.data.treebanks.brackets import brackets_of, branching_brackets
from structattn.data.treebanks.linearization import Repaired, Tags, linearize, repair
from structattn.data.treebanks.reading import NumberedTree, read_trees
from structattn.data.treebanks.tree import Leaf, Tree, bracketed, leaves_of, simplify

__all__ = [
    "Leaf",
    "NumberedTree",
    "Repaired",
    "Tags",
    "Tree",
    "bracketed",
    "brackets_of",
    "branching_brackets",
    "leaves_of",
    "linearize",
    "read_trees",
    "repair",
    "simplify",
]

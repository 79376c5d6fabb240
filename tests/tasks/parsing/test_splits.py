"""The splits of constituency trees."""

from structattn.tasks.parsing.trees import Leaf, Tree, binary_splits


def test_constituents_branch_to_the_right_and_single_children_are_none():
    the, old, dog, sees, us = (Leaf("X", word) for word in ("the", "old", "dog", "sees", "us"))
    tree = Tree("TOP", (Tree("S", (Tree("NP", (the, old, dog)), Tree("VP", (sees, Tree("NP", (us,)))))),))
    assert sorted(binary_splits(tree)) == sorted([(0, 2, 4), (0, 0, 2), (1, 1, 2), (3, 3, 4)])
    assert binary_splits(tree, first=10)[0] == (10, 12, 14)
    assert binary_splits(us) == []

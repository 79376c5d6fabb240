"""The brackets of a tree that evalb scores with COLLINS.prm, and those of baselines.

Words are deleted whose part of speech is ``,``, ``:``, two backquotes, two quotes, ``.`` or -NONE-; constituents of
deleted words only have no bracket, nor has the root TOP (here also ROOT and S1); PRT counts as ADVP. Tags themselves
are not scored. Question and exclamation marks, whose tag is ``.``, are deleted; currency signs and parentheses are not.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from structattn.tasks.parsing.tree import TOP_LABELS, TRACE, Leaf, Tree

DELETED_TAGS: Final = frozenset({",", ":", "``", "''", ".", TRACE})
EQUAL_LABELS: Final = {"PRT": "ADVP"}

Span = tuple[str, int, int]


def brackets_of(tree: Tree, tags: Sequence[str]) -> list[Span]:
    """Return label, start and end of each constituent, counted in the words that are not deleted.

    Args:
        tree: true or predicted.
        tags: the true part-of-speech tag of each word, since predicted trees may have none.

    Raises:
        ValueError: there is not one tag for each word.
    """
    kept = [tag not in DELETED_TAGS for tag in tags]
    positions = [sum(kept[:n]) for n in range(len(kept) + 1)]
    found = list(_spans(tree, 0))
    if not found or found[-1][2] != len(tags):
        raise ValueError(f"a tree of {found[-1][2] if found else 0} words with {len(tags)} tags; expected equally many")
    moved = [(EQUAL_LABELS.get(label, label), positions[start], positions[end]) for label, start, end in found]
    return [(label, start, end) for label, start, end in moved if start < end and label not in TOP_LABELS]


def _spans(tree: Tree, start: int) -> Iterator[Span]:
    """Yield the constituents below a tree, and at last the tree itself."""
    end = start
    for child in tree.children:
        if isinstance(child, Leaf):
            end += 1
        else:
            for span in _spans(child, end):
                yield span
            end = span[2]
    yield tree.label, start, end


def branching_brackets(tags: Sequence[str], direction: Literal["right", "left"], label: str) -> list[Span]:
    """Return the brackets of a binary tree that branches to one side, over the words that are not deleted.

    Args:
        tags: the part-of-speech tag of each word.
        direction: ``right``: (a (b (c d))); ``left``: (((a b) c) d).
        label: of every constituent.
    """
    count = sum(tag not in DELETED_TAGS for tag in tags)
    if count == 1:
        return [(label, 0, 1)]
    return [(label, start, count) if direction == "right" else (label, 0, count - start) for start in range(count - 1)]

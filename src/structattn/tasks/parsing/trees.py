"""Constituency trees: simplified, bracketed, linearized and repaired."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, Literal, Union

from structattn.operators.tree_regularization import Split
from structattn.settings.choices import TreeTags
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL

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
    kept = _without_traces(tree)
    if not isinstance(kept, Tree) or kept.label not in TOP_LABELS:
        return kept if isinstance(kept, Tree) else None
    only = kept.children[0] if len(kept.children) == 1 else None
    return only if isinstance(only, Tree) else Tree(TOP, kept.children)


def _without_traces(tree: Tree | Leaf) -> Tree | Leaf | None:
    if isinstance(tree, Leaf):
        return None if tree.tag == TRACE else tree
    children = tuple(kept for child in tree.children if (kept := _without_traces(child)) is not None)
    return Tree(_FUNCTION.sub("", tree.label), children) if children else None


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
    positions = list(accumulate(kept, initial=0))
    spans = list(_spans(tree, 0))
    if spans[-1][2] != len(tags):
        raise ValueError(f"a tree of {spans[-1][2]} words with {len(tags)} tags; expected equally many")
    moved = [(EQUAL_LABELS.get(label, label), positions[start], positions[end]) for label, start, end in spans]
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

    To the right, that is (a (b (c d))); to the left (((a b) c) d). Every constituent has the same label.
    """
    count = sum(tag not in DELETED_TAGS for tag in tags)
    if count == 1:
        return [(label, 0, 1)]
    return [(label, start, count) if direction == "right" else (label, 0, count - start) for start in range(count - 1)]


NORMALIZED: Final = "XX"
"""Stands for every word if tags are normalized."""


def linearize(tree: Tree | Leaf, tags: TreeTags = "normalized") -> list[str]:
    """Return the symbols of a tree.

    Args:
        tree: any tree.
        tags: ``normalized``: each word is XX, those of punctuation too; ``kept``: its part-of-speech tag.
    """
    if isinstance(tree, Leaf):
        return [NORMALIZED if tags == "normalized" else tree.tag]
    inner = [symbol for child in tree.children for symbol in linearize(child, tags)]
    return [f"({tree.label}", *inner, f"){tree.label}"]


@dataclass(frozen=True)
class Repaired:
    """A tree that was made of symbols.

    Args:
        tree: over exactly the given words.
        malformed: whether the symbols were not the linearization of a tree with that number of words.
    """

    tree: Tree
    malformed: bool


_NO_TAGS: Final = frozenset({UNKNOWN_SYMBOL, "(", ")"})


def is_opening(symbol: str) -> bool:
    """Return whether a symbol of a linearized tree is ``(LABEL``."""
    return len(symbol) > 1 and symbol[0] == "("


def is_closing(symbol: str) -> bool:
    """Return whether a symbol of a linearized tree is ``)LABEL``."""
    return len(symbol) > 1 and symbol[0] == ")"


def is_word(symbol: str, tags: TreeTags) -> bool:
    """Return whether a symbol of a linearized tree stands for a word."""
    is_tag = not is_opening(symbol) and not is_closing(symbol) and symbol not in _NO_TAGS
    return is_tag and (tags == "kept" or symbol == NORMALIZED)


@dataclass
class _Open:
    """A constituent that is not closed yet."""

    label: str
    children: list[Tree | Leaf] = field(default_factory=list)


@dataclass
class _Builder:
    """Builds a tree from left to right; the first of ``stack`` is the root that joins what stands outside brackets."""

    words: Iterator[str]
    tags: TreeTags
    stack: list[_Open] = field(default_factory=lambda: [_Open(TOP)])
    malformed: bool = False

    def add(self, symbol: str) -> None:
        """Process one symbol; one that has no place is dropped."""
        if is_opening(symbol):
            self._open(symbol[1:])
        elif is_closing(symbol):
            self._close(symbol[1:])
        else:
            self._add_word(symbol)

    def _open(self, label: str) -> None:
        if len(self.stack) < MAX_DEPTH:
            self.stack.append(_Open(label))
        else:
            self.malformed = True

    def _close(self, label: str) -> None:
        """Close the innermost constituent with this label, and those inside it."""
        depth = next((n for n in range(len(self.stack) - 1, 0, -1) if self.stack[n].label == label), None)
        if depth != len(self.stack) - 1:
            self.malformed = True
        if depth is not None:
            self.close_to(depth)

    def _add_word(self, tag: str) -> None:
        word, is_tag = next(self.words, None), is_word(tag, self.tags)
        if word is None or not is_tag:
            self.malformed = True
        if word is not None:
            self.stack[-1].children.append(Leaf(tag if is_tag else NORMALIZED, word))

    def close_to(self, depth: int) -> None:
        """Close all constituents from this depth on; those without words are dropped."""
        while len(self.stack) > depth:
            closed = self.stack.pop()
            if closed.children:
                self.stack[-1].children.append(Tree(closed.label, tuple(closed.children)))
            else:
                self.malformed = True


def repair(symbols: Sequence[str], words: Sequence[str], tags: TreeTags = "kept") -> Repaired:
    """Return the tree of a sequence of symbols over given words, however malformed the sequence is.

    - A closing bracket closes the innermost constituent with its label, and those inside; without one it is dropped.
    - Constituents that are open at the end are closed; those without words are dropped.
    - Symbols of words beyond the number of words are dropped; words beyond the symbols are added at the end, to the
      constituent that is open then, otherwise to the root.
    - Any other symbol stands for a word: <unk>, a bare bracket, and a tag other than XX where ``tags`` are normalized.
    - Several constituents without a common root are joined under ``TOP``.
    - Brackets nested deeper than ``MAX_DEPTH`` are dropped.

    Raises:
        ValueError: there are no words.
    """
    if not words:
        raise ValueError("no words; expected at least one")
    builder = _Builder(iter(words), tags)
    for symbol in symbols:
        builder.add(symbol)
    if len(builder.stack) > 1:
        builder.malformed = True
    if rest := list(builder.words):
        builder.malformed = True
        _innermost(builder).children += [Leaf(NORMALIZED, word) for word in rest]
    builder.close_to(1)
    children = tuple(builder.stack[0].children)
    if len(children) == 1 and isinstance(children[0], Tree):
        return Repaired(children[0], builder.malformed)
    return Repaired(Tree(TOP, children), True)


def _innermost(builder: _Builder) -> _Open:
    """Return where words are added at the end: the open constituent, or the root as an open one again."""
    root = builder.stack[0]
    only = root.children[0] if len(builder.stack) == len(root.children) == 1 else None
    if isinstance(only, Tree):
        root.children = []
        builder.stack.append(_Open(only.label, list(only.children)))
    return builder.stack[-1]


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

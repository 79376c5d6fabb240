"""Trees as sequences of symbols, and back, whatever the symbols (Vinyals et al. 2015, section 2.2).

``(S (NP (NNP John)) (VP (VBZ sleeps)) (. .))`` becomes ``(S (NP XX )NP (VP XX )VP XX )S``: the brackets with their
labels in depth-first order, and one symbol for each word, the same for all words or their part-of-speech tag.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from structattn.tasks.parsing.tree import MAX_DEPTH, TOP, Leaf, Tree

NORMALIZED: Final = "XX"
"""Stands for every word if tags are normalized."""

Tags = Literal["normalized", "kept"]
"""Whether part-of-speech tags are replaced by one, as in Vinyals et al. (2015), or kept."""


def linearize(tree: Tree | Leaf, tags: Tags = "normalized") -> list[str]:
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


@dataclass
class _Open:
    """A constituent that is not closed yet."""

    label: str
    children: list[Tree | Leaf] = field(default_factory=list)


@dataclass
class _Builder:
    """Builds a tree from left to right; the first of ``stack`` is the root that joins what stands outside brackets."""

    words: Iterator[str]
    stack: list[_Open] = field(default_factory=lambda: [_Open(TOP)])
    malformed: bool = False

    def add(self, symbol: str) -> None:
        """Process one symbol; one that has no place is dropped."""
        if len(symbol) > 1 and symbol[0] == "(":
            self._open(symbol[1:])
        elif len(symbol) > 1 and symbol[0] == ")":
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
        word = next(self.words, None)
        if word is None:
            self.malformed = True
        else:
            self.stack[-1].children.append(Leaf(tag, word))

    def close_to(self, depth: int) -> None:
        """Close all constituents from this depth on; those without words are dropped."""
        while len(self.stack) > depth:
            closed = self.stack.pop()
            if closed.children:
                self.stack[-1].children.append(Tree(closed.label, tuple(closed.children)))
            else:
                self.malformed = True


def repair(symbols: Sequence[str], words: Sequence[str]) -> Repaired:
    """Return the tree of a sequence of symbols over given words, however malformed the sequence is.

    - A closing bracket closes the innermost constituent with its label, and those inside; without one it is dropped.
    - Constituents that are open at the end are closed; those without words are dropped.
    - Symbols of words beyond the number of words are dropped; words beyond the symbols are added at the end, to the
      constituent that is open then, otherwise to the root.
    - Several constituents without a common root are joined under ``TOP``.
    - Brackets nested deeper than ``MAX_DEPTH`` are dropped.

    Args:
        symbols: such as those of ``linearize``.
        words: of the sentence, at least one.

    Raises:
        ValueError: there are no words.
    """
    if not words:
        raise ValueError("no words; expected at least one")
    builder = _Builder(iter(words))
    for symbol in symbols:
        builder.add(symbol)
    if len(builder.stack) > 1:
        builder.malformed = True
    if rest := list(builder.words):
        builder.malformed = True
        _innermost(builder).children += [Leaf(NORMALIZED, word) for word in rest]
    builder.close_to(1)
    return _joined(builder)


def _innermost(builder: _Builder) -> _Open:
    """Return where words are added at the end: the open constituent, or the root as an open one again."""
    root = builder.stack[0]
    only = root.children[0] if len(builder.stack) == len(root.children) == 1 else None
    if isinstance(only, Tree):
        root.children = []
        builder.stack.append(_Open(only.label, list(only.children)))
    return builder.stack[-1]


def _joined(builder: _Builder) -> Repaired:
    children = tuple(builder.stack[0].children)
    if len(children) == 1 and isinstance(children[0], Tree):
        return Repaired(children[0], builder.malformed)
    return Repaired(Tree(TOP, children), True)

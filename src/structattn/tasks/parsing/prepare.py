"""Preparation of trees, ``(S (NP (DT the) (NN cat)) (VP (VBD sat)))``, which are read strictly.

| input                                                | outcome                                           |
|------------------------------------------------------|---------------------------------------------------|
| what ``text.reading`` refuses                        | refused with file, line and byte column           |
| a bracket too many or too few, text outside a tree   | refused with file and line                        |
| a constituent without children, a leaf without word  | refused with file and line                        |
| words among constituents, ``(NP the (NN cat))``      | refused with file and line                        |
| brackets nested more than ``MAX_DEPTH`` deep         | refused with file and line                        |
| a tree of traces only                                | refused with file and line                        |
| an outer bracket without label, ``( (S ...))``       | accepted                                          |
| no tree at all                                       | refused with the file                             |
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from structattn.support.errors import DataError
from structattn.tasks.parsing.trees import MAX_DEPTH, Leaf, Tags, Tree, leaves_of, linearize, simplify
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.reading import RawPair, Text
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.lines import Normalization
from structattn.text.reading import Notices, read_lines

_TOKEN = re.compile(r"[()]|[^ \t()]+")


class NumberedTree(NamedTuple):
    """A simplified tree and the line that it begins in, counted from 1."""

    line: int
    tree: Tree


@dataclass
class _Open:
    """A bracket that is not closed yet: its symbols that are not brackets, and its children."""

    line: int
    symbols: list[str] = field(default_factory=list)
    children: list[Tree | Leaf] = field(default_factory=list)


def read_trees(path: Path, notices: Notices) -> Iterator[NumberedTree]:
    """Read the trees of a file, simplified.

    Raises:
        DataError: something is malformed; the message gives file, line and reason.
    """
    empty = True
    for line, tree in _trees(path, notices):
        if not isinstance(tree, Tree):
            raise DataError(path, "a word with its tag alone; expected a tree", line)
        simple = simplify(tree)
        if simple is None:
            raise DataError(path, "the tree has no words but traces", line)
        yield NumberedTree(line, simple)
        empty = False
    if empty:
        raise DataError(path, "has no trees")


def _trees(path: Path, notices: Notices) -> Iterator[tuple[int, Tree | Leaf]]:
    open_brackets: list[_Open] = []
    for line in read_lines(path, notices):
        for token in _TOKEN.findall(line.text):
            if token == "(":
                open_brackets.append(_Open(line.number))
                if len(open_brackets) > MAX_DEPTH:
                    raise DataError(path, f"brackets are nested more than {MAX_DEPTH} deep", line.number)
            elif not open_brackets:
                raise DataError(path, f"{token!r:.60} is outside any tree", line.number)
            elif token != ")":
                open_brackets[-1].symbols.append(token)
            else:
                bracket = open_brackets.pop()
                node = _closed(bracket, path, line.number)
                if open_brackets:
                    open_brackets[-1].children.append(node)
                else:
                    yield bracket.line, node
    if open_brackets:
        raise DataError(path, "a tree is not closed before the end of the file", open_brackets[0].line)


def _closed(bracket: _Open, path: Path, line: int) -> Tree | Leaf:
    symbols, children = bracket.symbols, tuple(bracket.children)
    if len(symbols) == 2 and not children:
        return Leaf(*symbols)
    if children and len(symbols) <= 1:
        return Tree("".join(symbols), children)
    given = f"a bracket of {len(symbols)} symbols ({' '.join(symbols):.60}) and {len(children)} brackets"
    raise DataError(path, f"{given}; expected (TAG word) or (LABEL (...) ...)", line)


TREE_TAGS: Final = "tree_tags"
"""The key of the header that tells how trees were linearized."""


def prepare_trees(
    folder: Path, splits: Mapping[str, Path], *, tags: Tags = "normalized", tokenizer: TokenizerSettings
) -> tuple[str, ...]:
    """Write a prepared folder of trees for a parser; see ``prepare_parallel``.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        splits: maps names of splits to files of bracketed trees.
        tags: what stands for a word in a linearized tree.
        tokenizer: of words and of linearized trees.

    Returns:
        Notices to the user.

    Raises:
        DataError: a file is refused, with file, line and reason. Nothing is left on disk.
        UsageError: an option is invalid, or an optional library is not installed.
    """
    return prepare_parallel(
        folder,
        {name: (path,) for name, path in splits.items()},
        tokenizer=tokenizer,
        normalization=Normalization(nfkc=False),
        reader=partial(_read_pairs, tags),
        description={TREE_TAGS: tags},
    )


def _read_pairs(tags: Tags, path: Path, notices: Notices) -> Iterator[RawPair]:
    for line, tree in read_trees(path, notices):
        sides = " ".join(leaf.word for leaf in leaves_of(tree)), " ".join(linearize(tree, tags))
        yield RawPair(line, *(Text(side, path, line, 0) for side in sides))

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
| an inner bracket without label, ``(S ((NN cat)))``   | refused with file and line                        |
| no tree at all                                       | refused with the file                             |
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from structattn.settings.choices import PairLayout, TreeTags
from structattn.support.errors import DataError, UsageError, quoted
from structattn.tasks.language_modeling.prepare import report_unknown, text_entries, train_tokenizer
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.parsing.trees import MAX_DEPTH, Leaf, Tree, binary_splits, leaves_of, linearize, simplify
from structattn.tasks.translation.prepare import prepare_parallel, require_splits
from structattn.tasks.translation.reading import RawPair, Text
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.text_statistics import TextStatistics
from structattn.text.folders.text_tokenizer import SUBWORD_LEVELS, TextTokenizer
from structattn.text.folders.writing import require_empty_folder, source_entry, write_tokenized
from structattn.text.lines import Normalization
from structattn.text.reading import Notices, read_lines
from structattn.text.tokenization.splitting import text_size
from structattn.text.tokenization.subword_tokenizer import SubwordTokenizer
from structattn.text.tokenization.subword_training import report_words_seen_once
from structattn.text.tokenization.tokenizers import locate_errors, refuse_control_symbols

_TOKEN = re.compile(r"[()]|[^ \t()]+")


class NumberedTree(NamedTuple):
    """A simplified tree and the line that it begins in, counted from 1."""

    line: int
    tree: Tree


@dataclass
class _Open:
    """A bracket that is not closed yet: its symbols, its children, and whether a symbol follows a child."""

    line: int
    symbols: list[str] = field(default_factory=list)
    children: list[Tree | Leaf] = field(default_factory=list)
    has_late_symbol: bool = False

    def add(self, symbol: str) -> None:
        self.symbols.append(symbol)
        self.has_late_symbol |= bool(self.children)


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
                raise DataError(path, f"{quoted(token)} is outside any tree", line.number)
            elif token != ")":
                open_brackets[-1].add(token)
            else:
                bracket = open_brackets.pop()
                node = _closed(bracket, path, line.number)
                if open_brackets:
                    _require_label(node, path, bracket.line)
                    open_brackets[-1].children.append(node)
                else:
                    yield bracket.line, node
    if open_brackets:
        raise DataError(path, "a tree is not closed before the end of the file", open_brackets[0].line)


def _closed(bracket: _Open, path: Path, line: int) -> Tree | Leaf:
    symbols, children = bracket.symbols, tuple(bracket.children)
    if len(symbols) == 2 and not children:
        return Leaf(*symbols)
    if children and len(symbols) <= 1 and not bracket.has_late_symbol:
        return Tree("".join(symbols), children)
    given = f"a bracket of {len(symbols)} symbols ({' '.join(symbols):.60}) and {len(children)} brackets"
    raise DataError(path, f"{given}; expected (TAG word) or (LABEL (...) ...)", line)


def _require_label(inner: Tree | Leaf, path: Path, line: int) -> None:
    """Check that a node that is no root has a label: without one, its symbols ``(`` and ``)`` are taken for words."""
    if isinstance(inner, Tree) and not inner.label:
        raise DataError(path, "a bracket inside a tree has no label; expected (LABEL (...) ...)", line)


TREE_TAGS: Final = "tree_tags"
"""The key of the header that tells how trees were linearized."""


def prepare_trees(
    folder: Path,
    splits: Mapping[str, Path],
    *,
    tags: TreeTags = "normalized",
    tokenizer: TokenizerSettings,
    layout: PairLayout = "parallel",
) -> tuple[str, ...]:
    """Write a prepared folder of trees for a parser, see ``prepare_parallel``, or for a language model.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        splits: maps names of splits to files of bracketed trees.
        tags: what stands for a word in a linearized tree.
        tokenizer: of words and of linearized trees.
        layout: ``parallel``: sentences and linearized trees, for a parser; ``sentences``: sentences alone, as text, and
            their trees made binary, for ``training.tree_regularization``; ``tags`` then have no use.

    Returns:
        Notices to the user.

    Raises:
        DataError: a file is refused, with file, line and reason. Nothing is left on disk.
        UsageError: an option is invalid, or an optional library is not installed.
    """
    if layout == "sentences":
        require_splits([*splits])
        return _prepare_sentences(Path(folder), {name: Path(path) for name, path in splits.items()}, tokenizer)
    return prepare_parallel(
        folder,
        {name: (path,) for name, path in splits.items()},
        tokenizer=tokenizer,
        normalization=Normalization(nfkc=False),
        reader=partial(_read_pairs, tags),
        description={TREE_TAGS: tags},
    )


def _read_pairs(tags: TreeTags, path: Path, notices: Notices) -> Iterator[RawPair]:
    for line, tree in read_trees(path, notices):
        sides = " ".join(leaf.word for leaf in leaves_of(tree)), " ".join(linearize(tree, tags))
        yield RawPair(line, *(Text(side, path, line, 0) for side in sides))


def _prepare_sentences(folder: Path, splits: Mapping[str, Path], tokenizer: TokenizerSettings) -> tuple[str, ...]:
    """Write the words of trees as text, and the trees. All of them are in memory at once."""
    settings = TextSettings(
        tokenizer.level,
        min_count=max(1, tokenizer.threshold),
        vocabulary_size=tokenizer.size if tokenizer.level in SUBWORD_LEVELS else None,
        marker=tokenizer.marker,
    )
    if settings.unit != "word":
        raise UsageError(f"level {settings.level!r}: trees are over words; expected words or parts of words (--level)")
    require_empty_folder(folder)
    notices = Notices()
    sources = [source_entry(path, name, folder) for name, path in splits.items()]
    trees = {name: list(read_trees(path, notices)) for name, path in splits.items()}
    words = {name: _counted(splits[name], of_split) for name, of_split in trees.items()}
    train = words.pop("train")
    settings = settings.fitted(train)
    encoder = train_tokenizer(train, [word for of_split in words.values() for word in of_split], settings)
    if isinstance(encoder.tokenizer, SubwordTokenizer):
        report_words_seen_once(train, encoder.tokenizer, notices)
    encoded = {name: _encoded(encoder, of_split) for name, of_split in trees.items()}
    tokens = {name: [each for each, _ in of_split] for name, of_split in encoded.items()}
    statistics = {name: _statistics(of_split, tokens[name]) for name, of_split in trees.items()}
    unknown = {name: int(np.isin([*chain(*each)], encoder.unknown_ids).sum()) for name, each in tokens.items()}
    write_tokenized(
        folder,
        kind="sentences",
        tokenizer=encoder,
        description=settings.description(),
        splits=tokens,
        sources=sources,
        trees={name: np.array([rank for _, ranks in of_split for rank in ranks]) for name, of_split in encoded.items()},
        extra=lambda: text_entries(statistics, unknown),
    )
    report_unknown(settings, statistics, unknown, notices)
    return notices.messages


def _statistics(trees: list[NumberedTree], tokens: list[list[int]]) -> TextStatistics:
    size = text_size("".join(" ".join(leaf.word for leaf in leaves_of(tree)) + "\n" for _, tree in trees))
    count = sum(map(len, tokens))
    return TextStatistics(len(trees), 0, size.words, size.characters, size.bytes, tokens_read=count, tokens_kept=count)


def _counted(path: Path, trees: list[NumberedTree]) -> Counter[str]:
    """Count the words; refuse names of control symbols."""
    counts = Counter[str]()
    for line, tree in trees:
        words = [leaf.word for leaf in leaves_of(tree)]
        with locate_errors(path, line, 0, exact=False):
            refuse_control_symbols(" ".join(words), words)
        counts.update(words)
    return counts


def _encoded(encoder: TextTokenizer, trees: list[NumberedTree]) -> list[tuple[list[int], list[int]]]:
    """Return the ids of each sentence, and for each the rank of the split after it or 0."""
    known: dict[str, list[int]] = {}
    sentences = []
    for _, tree in trees:
        tokens: list[int] = []
        ends = []
        for leaf in leaves_of(tree):
            if leaf.word not in known:
                known[leaf.word] = encoder.encode(leaf.word)
            tokens += known[leaf.word]
            ends.append(len(tokens) - 1)
        ranks = [0] * len(tokens)
        for rank, (_, word, _) in enumerate(binary_splits(tree), start=1):
            ranks[ends[word]] = rank
        sentences.append((tokens, ranks))
    return sentences

"""Preparation of bracketed trees as pairs: the words of each tree, and the tree, linearized."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from structattn.tasks.parsing.reading import read_trees
from structattn.tasks.parsing.trees import Tags, leaves_of, linearize
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.reading import RawPair, Text
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.normalization import Normalization
from structattn.text.reading import Notices

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

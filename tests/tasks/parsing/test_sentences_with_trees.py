"""Sentences with trees: what ``prepare trees --layout sentences`` writes, and the splits that are read back."""

import random

import numpy as np
import pytest

from structattn.support.errors import DataError, UsageError
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.language_modeling.trees import SentenceTrees
from structattn.tasks.parsing.prepare import prepare_trees
from structattn.tasks.parsing.trees import Leaf, Tree, binary_splits, bracketed, leaves_of
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared
from structattn.text.folders.text_statistics import STATISTICS

WORDS = TokenizerSettings("word", joint=False)


def random_tree(generator, depth=0):
    if depth and generator.random() < 0.4:
        return Leaf("X", generator.choice(["ant", "bee", "cicada", "dragonfly"]))
    children = tuple(random_tree(generator, depth + 1) for _ in range(generator.randint(1, 3 if depth < 5 else 1)))
    return Tree("S", children)


@pytest.fixture(scope="module")
def trees():
    generator = random.Random(1)
    return [random_tree(generator) for _ in range(60)]


@pytest.fixture
def prepare(tmp_path, trees):
    def run(tokenizer):
        for name, part in (("train", trees[:50]), ("valid", trees[50:])):
            (tmp_path / name).write_text("".join(bracketed(tree) + "\n" for tree in part))
        files = {name: tmp_path / name for name in ("train", "valid")}
        prepare_trees(tmp_path / "data", files, tokenizer=tokenizer, layout="sentences")
        return open_prepared(tmp_path / "data")

    return run


def read(prepared, split):
    """Return the splits, and the positions at which words begin, of each sentence."""
    stored = SentenceTrees.of(prepared, split)
    splits, starts = stored(range(len(stored.sequences)))
    found = [[] for _ in starts]
    for sentence, *each in splits.tolist():
        found[sentence].append(tuple(each))
    return found, [np.flatnonzero(row).tolist() for row in starts]


def test_the_trees_of_sentences_are_read_back(prepare, trees):
    prepared = prepare(WORDS)
    assert prepared.kind == "sentences"
    for split, part in (("train", trees[:50]), ("valid", trees[50:])):
        sequences = prepared.split(split)
        texts = [prepared.tokenizer.decode(sequences[index]) for index in range(len(part))]
        assert texts == [" ".join(leaf.word for leaf in leaves_of(tree)) for tree in part]
        found, starts = read(prepared, split)
        for tree, splits, begins in zip(part, found, starts, strict=True):
            assert sorted(splits) == sorted(binary_splits(tree))
            assert begins == list(range(len(list(leaves_of(tree)))))


def test_splits_are_between_words_that_have_parts(prepare, trees):
    prepared = prepare(TokenizerSettings("bpe", joint=False, size=4))
    found, starts = read(prepared, "train")
    sequences = prepared.split("train")
    assert any(len(begins) < len(sequences[index]) for index, begins in enumerate(starts))
    for index, tree in enumerate(trees[:50]):
        ends = [*starts[index][1:], len(sequences[index])]
        words = [(starts[index][first], ends[left] - 1, ends[last] - 1) for first, left, last in binary_splits(tree)]
        assert sorted(found[index]) == sorted(words)
        spelled = zip(starts[index], ends, strict=True)
        texts = [prepared.tokenizer.decode(sequences[index][first:end]) for first, end in spelled]
        assert texts == [leaf.word for leaf in leaves_of(tree)]


def test_words_that_are_rare_or_new_are_unknown(prepare, tmp_path):
    (tmp_path / "a").write_text("(S (X ant) (X ant) (X bee))\n")
    files = {"train": tmp_path / "a", "valid": tmp_path / "a"}
    prepare_trees(tmp_path / "out", files, tokenizer=TokenizerSettings("word", False, None, 2), layout="sentences")
    assert open_prepared(tmp_path / "out").vocabulary.symbols[3:] == ("<unk>", "ant")


@pytest.mark.parametrize(
    "tokenizer",
    [TokenizerSettings("word", False, None, 2), TokenizerSettings("bpe", False, 1), TokenizerSettings("bpe", False)],
)
def test_text_is_described_as_that_without_trees(tmp_path, tokenizer):
    """So that evaluation gives perplexity per word and bits per character, and the share of ``<unk>``."""
    texts = {"train": "ant ant é bee bee\nzé\n", "valid": "cicada ant\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        lines = ["(S " + " ".join(f"(X {word})" for word in line.split()) + ")\n" for line in text.splitlines()]
        (tmp_path / f"{name}.trees").write_text("".join(lines))
    trees = {name: tmp_path / f"{name}.trees" for name in texts}
    notices = prepare_trees(tmp_path / "trees", trees, tokenizer=tokenizer, layout="sentences")
    size = {"vocabulary_size": tokenizer.size} if tokenizer.level == "bpe" else {"min_count": 2}
    settings = TextSettings(tokenizer.level, **size)
    expected = prepare_language_modeling(tmp_path / "text", *(tmp_path / name for name in texts), settings=settings)
    assert notices == expected
    assert len(notices) == 1
    found, without = (open_prepared(tmp_path / name).header for name in ("trees", "text"))
    assert found.tokenizer == without.tokenizer
    assert found.extra == {name: without.extra[name] for name in ("unknown_tokens", STATISTICS)}


def test_errors(prepare, tmp_path):
    with pytest.raises(UsageError, match="there is no split 'train', only valid"):
        prepare_trees(tmp_path / "other", {"valid": tmp_path / "valid"}, tokenizer=WORDS, layout="sentences")
    with pytest.raises(UsageError, match="level 'character': trees are over words"):
        prepare(TokenizerSettings("character", joint=False))
    assert not (tmp_path / "data").exists()
    (tmp_path / "bad").write_text("(S (X a))\n(S (X <eos>))\n")
    files = {"train": tmp_path / "bad", "valid": tmp_path / "bad"}
    with pytest.raises(DataError, match=r"bad:2.*<eos> is the name of a control symbol"):
        prepare_trees(tmp_path / "data", files, tokenizer=WORDS, layout="sentences")
    assert not (tmp_path / "data").exists()

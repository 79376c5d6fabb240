"""Batches of pairs: each pair once per epoch, limits, plans as functions of seed and epoch, exact tensors."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from structattn.support.errors import UsageError
from structattn.text.batching.corruption import SubwordDropout
from structattn.text.batching.pairs import make_pair_batch, pair_token_batches
from structattn.text.folders.parallel import Pairs, ParallelSides
from structattn.text.folders.sequences import Sequences
from structattn.text.folders.text_tokenizer import TextTokenizer
from structattn.text.lines import Normalization
from structattn.text.tokenization.byte_pair_encoding import BytePairEncoding
from structattn.text.tokenization.subword_tokenizer import SubwordTokenizer
from structattn.text.tokenization.tokenizers import SymbolTokenizer
from structattn.text.tokenization.vocabulary import Vocabulary

LENGTHS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=60)
SEEDS = st.integers(0, 2**63 - 1)
EPOCHS = st.none() | st.integers(0, 5)
LIMITED = st.sampled_from(["source", "target", "both", "sum"])
PAIRS = [([5, 6], [7]), ([8], [9, 10, 11]), ([], [])]


def plan(lengths, *arguments, **options):
    source, target = ([pair[side] for pair in lengths] for side in (0, 1))
    return [batch.tolist() for batch in pair_token_batches(source, target, *arguments, **options)]


def padded_size(lengths, batch, limited):
    source, target = (len(batch) * (1 + max(lengths[index][side] for index in batch)) for side in (0, 1))
    return {"source": source, "target": target, "both": max(source, target), "sum": source + target}[limited]


@given(LENGTHS, st.integers(1, 60), SEEDS, EPOCHS, LIMITED)
def test_each_pair_once_and_within_the_limit(lengths, tokens, seed, epoch, limited):
    batches = plan(lengths, tokens, seed, epoch, limited=limited)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or padded_size(lengths, batch, limited) <= tokens for batch in batches)
    assert batches == plan(lengths, tokens, seed, epoch, limited=limited)


@given(LENGTHS, st.integers(1, 60), LIMITED)
def test_batches_are_as_large_as_the_order_allows(lengths, tokens, limited):
    batches = plan(lengths, tokens, 0, None, limited=limited)
    for batch, following in pairwise(batches):
        assert padded_size(lengths, [*batch, following[0]], limited) > tokens


def test_pairs_share_a_batch_with_pairs_of_similar_length():
    lengths = [(length, length + 1) for length in range(1, 9) for _ in range(20)]
    for epoch in (None, 0, 3):
        batches = plan(lengths, 100, 1, epoch)
        spread = max(max(lengths[i][0] for i in batch) - min(lengths[i][0] for i in batch) for batch in batches)
        assert spread <= 3


def test_seeds_and_epochs_change_members_and_order():
    lengths = [(4, 4)] * 100
    plans = [plan(lengths, 50, seed, epoch) for seed, epoch in ((1, 0), (1, 1), (2, 0))]
    members = [{frozenset(batch) for batch in batches} for batches in plans]
    assert len({frozenset(found) for found in members}) == 3
    assert plan(lengths, 50, 1, None) == [list(range(start, start + 10)) for start in range(0, 100, 10)]


def test_impossible_plans_are_rejected():
    for arguments, reason in ((([1], [1], 0, 0, 0), "tokens=0"), (([1], [1, 2], 9, 0, 0), "1 source lengths and 2")):
        with pytest.raises(ValueError, match=reason):
            pair_token_batches(*arguments)
    with pytest.raises(ValueError, match="limited is 'all'"):
        pair_token_batches([1], [1], 9, 0, 0, limited="all")


def test_the_tensors_of_a_batch():
    batch = make_pair_batch([(np.array(s, int), np.array(t, int)) for s, t in PAIRS], [1, 0, 2])
    assert batch.source.tolist() == [[8, 2, 0], [5, 6, 2], [2, 0, 0]]
    assert batch.source_lengths.tolist() == [2, 3, 1]
    assert batch.inputs.tolist() == [[1, 9, 10, 11], [1, 7, 0, 0], [1, 0, 0, 0]]
    assert batch.targets.tolist() == [[9, 10, 11, 2], [7, 2, 0, 0], [2, 0, 0, 0]]
    assert batch.lengths.tolist() == [4, 2, 1]
    assert batch.examples == (1, 0, 2)
    assert batch.source.dtype == batch.lengths.dtype == torch.int64
    assert batch.to("cpu").targets.tolist() == batch.targets.tolist()


def test_no_pairs_give_an_empty_batch():
    batch = make_pair_batch([], [])
    assert (batch.source.shape, batch.inputs.shape, batch.examples) == ((0, 0), (0, 0), ())


def test_unequal_numbers_of_sides_are_rejected():
    two = Sequences(np.array([4, 5, 6], np.int32), np.array([0, 1, 3]))
    one = Sequences(np.array([4], np.int32), np.array([0, 1]))
    with pytest.raises(ValueError, match="2 source sequences, 1 target sequences, 2 lines"):
        Pairs(two, one, np.array([1, 2]))
    pairs = Pairs(two, two, np.array([1, 4]))
    assert [part.tolist() for part in pairs[1]] == [[5, 6], [5, 6]]
    with pytest.raises(IndexError):
        pairs[2]


@pytest.fixture
def sides():
    merges = (("a", "b"), ("c", "d"), ("ab", "cd"), ("abcd", " "))
    vocabulary = Vocabulary.from_symbols(["a", "b", "c", "d", " ", "ab", "cd", "abcd", "abcd "], unknown=True)
    side = TextTokenizer(SubwordTokenizer(BytePairEncoding(merges), vocabulary), Normalization())
    return ParallelSides(side, side, "bpe")


def cut(sides, dropout, epoch, indices):
    pairs = [tuple(np.array(side.encode("abcd abcd abcd")) for side in (sides.source, sides.target))] * 8
    batch = make_pair_batch(pairs, indices, dropout, epoch)
    texts = [sides.source.decode(row) for rows in (batch.source, batch.targets) for row in rows]
    assert texts == ["abcd abcd abcd"] * 2 * len(indices)
    return [
        (tuple(source[:length].tolist()), tuple(target[:size].tolist()))
        for source, length, target, size in zip(
            batch.source, batch.source_lengths, batch.targets, batch.lengths, strict=True
        )
    ]


def test_dropout_is_a_function_of_seed_epoch_pair_and_side(sides):
    dropout = SubwordDropout(sides, 0.4, 0.4, seed=7)
    rows = cut(sides, dropout, 0, range(8))
    assert cut(sides, dropout, 0, [5, 2]) == [rows[5], rows[2]]  # whatever else is in the batch, and in any order
    assert len(set(rows)) > 4
    assert any(source != target for source, target in rows)
    assert cut(sides, dropout, 1, range(8)) != rows
    assert cut(sides, SubwordDropout(sides, 0.4, 0.4, seed=8), 0, range(8)) != rows


def test_dropout_of_one_side_leaves_the_other(sides):
    rows = cut(sides, SubwordDropout(sides, 0.0, 0.9, seed=7), 0, range(8))
    assert {source for source, _ in rows} == {(*sides.source.encode("abcd abcd abcd"), 2)}
    assert len({target for _, target in rows}) > 1


def test_invalid_dropout_is_rejected_on_construction(sides):
    words = TextTokenizer(SymbolTokenizer("word", Vocabulary.from_symbols(["a"])), Normalization())
    for rates, reason in (
        ((0.1, 0.0), "needs level bpe"),
        ((0.0, 1.5), "expected 0 to 1"),
        ((float("nan"), 0), "0 to 1"),
    ):
        with pytest.raises(UsageError, match=reason):
            SubwordDropout(ParallelSides(words, sides.target, "bpe"), *rates, seed=1)
    SubwordDropout(ParallelSides(words, sides.target, "bpe"), 0.0, 0.1, seed=1)

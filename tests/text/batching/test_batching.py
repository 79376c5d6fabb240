"""Batches: each example once per epoch, limits, plans as functions of seed and epoch, exact tensors."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from structattn.text.batching.sequences import (
    make_batch,
    make_stream_batch,
    sequence_batches,
    stream_batches,
    token_batches,
)
from structattn.text.folders.sequences import Sequences

LENGTHS = st.lists(st.integers(0, 12), max_size=60)
SEEDS = st.integers(0, 2**63 - 1)
EPOCHS = st.none() | st.integers(0, 5)


def flat(batches):
    return [int(index) for batch in batches for index in batch]


def as_lists(batches):
    return [batch.tolist() for batch in batches]


@given(LENGTHS, st.integers(1, 7), SEEDS, EPOCHS)
def test_sequence_batches_hold_each_example_once_and_one_length(lengths, size, seed, epoch):
    batches = sequence_batches(lengths, size, seed, epoch)
    assert sorted(flat(batches)) == list(range(len(lengths)))
    assert all(len({lengths[index] for index in batch}) == 1 for batch in batches)
    smaller = [lengths[batch[0]] for batch in batches if len(batch) < size]
    assert all(len(batch) <= size for batch in batches)
    assert len(smaller) == len(set(smaller))  # only one rest for each length


@given(LENGTHS, st.integers(1, 7), SEEDS)
def test_sequence_batches_keep_their_members(lengths, size, seed):
    plans = [as_lists(sequence_batches(lengths, size, seed, epoch)) for epoch in (None, 0, 1)]
    assert sorted(plans[0]) == sorted(plans[1]) == sorted(plans[2])
    assert all(left < right for batch in plans[0] for left, right in pairwise(batch))  # in file order


@given(LENGTHS, st.integers(1, 40), SEEDS, EPOCHS)
def test_token_batches_hold_each_example_once_within_the_budget(lengths, tokens, seed, epoch):
    batches = token_batches(lengths, tokens, seed, epoch)
    assert sorted(flat(batches)) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * (max(lengths[index] for index in batch) + 1) <= tokens


@given(LENGTHS, st.integers(1, 40), SEEDS)
def test_token_batches_do_not_waste_the_budget(lengths, tokens, seed):
    batches = token_batches(lengths, tokens, seed, None)
    for batch, following in pairwise(batches):
        assert (len(batch) + 1) * (lengths[following[0]] + 1) > tokens  # the next sequence would not have fitted


@given(st.integers(0, 300), st.integers(1, 20), st.integers(1, 7), SEEDS, EPOCHS)
def test_stream_batches_hold_each_window_once(num_targets, length, size, seed, epoch):
    batches = stream_batches(num_targets, length, size, seed, epoch)
    assert sorted(flat(batches)) == list(range(-(-num_targets // length)))
    assert all(len(batch) == size for batch in batches[:-1])


PLANS = [
    lambda seed, epoch: sequence_batches([3] * 50 + [5] * 50, 2, seed, epoch),
    lambda seed, epoch: token_batches([3] * 50 + [5] * 50, 12, seed, epoch),
    lambda seed, epoch: stream_batches(1000, 10, 2, seed, epoch),
]


@pytest.mark.parametrize("plan", PLANS)
def test_plans_are_functions_of_seed_and_epoch(plan):
    np.random.seed(0)  # noqa: NPY002 - the global generator must have no influence
    first = as_lists(plan(1, 2))
    np.random.seed(1)  # noqa: NPY002
    assert as_lists(plan(1, 2)) == first
    others = [as_lists(plan(*key)) for key in [(1, 3), (2, 2), (1, None)]]
    assert first not in others
    assert len({str(other) for other in others}) == 3
    assert as_lists(plan(1, None)) == as_lists(plan(2, None))


def test_plans_are_the_same_everywhere():
    assert as_lists(sequence_batches([2, 1, 2, 1, 2], 2, 7, 0)) == [[4], [0, 2], [1, 3]]
    assert as_lists(token_batches([2, 1, 2, 1, 2], 6, 7, 0)) == [[4], [0, 2], [3, 1]]
    assert as_lists(stream_batches(10, 3, 2, 7, 0)) == [[1, 3], [2, 0]]


def test_evaluation_comes_in_order():
    assert as_lists(sequence_batches([2, 1, 2, 1, 2], 2, 0, None)) == [[1, 3], [0, 2], [4]]
    assert as_lists(token_batches([2, 1, 2, 1, 9], 6, 0, None)) == [[1, 3], [0, 2], [4]]
    assert as_lists(stream_batches(7, 2, 3, 0, None)) == [[0, 1, 2], [3]]


def test_token_batches_of_equal_lengths_are_shuffled_anew():
    plans = [sorted(map(sorted, as_lists(token_batches([3] * 40, 16, 1, epoch)))) for epoch in (0, 1)]
    assert plans[0] != plans[1]


def test_no_examples_give_no_batches():
    assert sequence_batches([], 3, 0, 0) == token_batches([], 3, 0, 0) == stream_batches(0, 2, 3, 0, 0) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: sequence_batches([1], 0, 0, 0),
        lambda: token_batches([1], 0, 0, 0),
        lambda: stream_batches(1, 0, 1, 0, 0),
        lambda: stream_batches(1, 1, 0, 0, 0),
    ],
)
def test_empty_batches_are_rejected(call):
    with pytest.raises(ValueError, match="=0; expected at least 1"):
        call()


def sequences_of(rows):
    tokens = np.array([symbol for row in rows for symbol in row], dtype=np.int32)
    return Sequences(tokens, np.cumsum([0, *map(len, rows)]))


def test_a_batch_of_sequences():
    batch = make_batch(sequences_of([[7], [3, 4, 5], []]), np.array([1, 2, 0]))
    assert batch.inputs.tolist() == [[1, 3, 4, 5], [1, 0, 0, 0], [1, 7, 0, 0]]
    assert batch.targets.tolist() == [[3, 4, 5, 2], [2, 0, 0, 0], [7, 2, 0, 0]]
    assert batch.lengths.tolist() == [4, 1, 2]
    assert batch.examples == (1, 2, 0)
    assert {tensor.dtype for tensor in (batch.inputs, batch.targets, batch.lengths)} == {torch.int64}


def test_a_list_of_arrays_makes_a_batch():
    assert make_batch([np.array([3]), np.array([4, 5])], [1]).targets.tolist() == [[4, 5, 2]]


def test_no_rows_make_an_empty_batch():
    batch = make_batch(sequences_of([[3]]), [])
    assert batch.inputs.shape == batch.targets.shape == (0, 0)
    assert batch.lengths.shape == (0,)


def test_a_batch_moves_to_a_device():
    batch = make_batch(sequences_of([[7]]), [0]).to("meta")
    assert {tensor.device.type for tensor in (batch.inputs, batch.targets, batch.lengths)} == {"meta"}
    assert batch.examples == (0,)


def test_a_batch_of_windows():
    sequences = sequences_of([[3, 4], [], [5]])  # <eos> 3 4 <eos> <eos> 5 <eos>
    batch = make_stream_batch(sequences, [0, 1], 4)
    assert batch.inputs.tolist() == [[2, 3, 4, 2], [2, 5, 0, 0]]
    assert batch.targets.tolist() == [[3, 4, 2, 2], [5, 2, 0, 0]]
    assert batch.lengths.tolist() == [4, 2]
    assert batch.examples == (0, 1)


@given(
    st.lists(st.lists(st.integers(3, 9), max_size=5), min_size=1, max_size=6),
    st.integers(1, 8),
    st.integers(1, 3),
    EPOCHS,
)
def test_each_target_of_a_stream_counts_once_an_epoch(rows, length, size, epoch):
    sequences = sequences_of(rows)
    whole = [2] + [symbol for row in rows for symbol in (*row, 2)]
    pieces = {}
    for windows in stream_batches(sequences.num_targets, length, size, 5, epoch):
        batch = make_stream_batch(sequences, windows, length)
        for row, window in enumerate(batch.examples):
            count = int(batch.lengths[row])
            pieces[window] = (batch.inputs[row, :count].tolist(), batch.targets[row, :count].tolist())
            assert not batch.inputs[row, count:].any()
            assert not batch.targets[row, count:].any()
    inputs = [symbol for window in sorted(pieces) for symbol in pieces[window][0]]
    targets = [symbol for window in sorted(pieces) for symbol in pieces[window][1]]
    assert inputs == whole[:-1]
    assert targets == whole[1:]

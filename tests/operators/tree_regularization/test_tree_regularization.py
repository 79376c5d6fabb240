"""Tree regularization: its recursion written out, trees that are found again, what does not count."""

import math
from functools import partial

import pytest
import torch

from structattn.operators import tree_regularization, tree_splits


def numbers(batch, time, size=4):
    return torch.randn(batch, time, size, dtype=torch.float64, generator=torch.Generator().manual_seed(time))


def independence(h, i, j):
    """As printed, with o(n, n) = 0."""
    if i == 0 or j >= len(h):
        return 0.0
    u = h[i - 1] / h[i - 1].norm()
    return (h[j] - (h[j] @ u) * u).norm()


def score(h, i, k, j):
    parts = (i, k), (k + 1, j), (k + 1, k + 1), (j + 1, j + 1)
    return sum(independence(h, *part) for part in parts)


def loss_of(h, tree, starts):
    """Top-down over a nested tuple of positions; returns the losses of the spans that count."""
    if isinstance(tree, int):
        return []
    left, right = tree
    i, j = edge(left, 0), edge(right, -1)
    places = [k for k in range(i, j) if starts[k + 1]]
    if j - i < 2 or len(places) < 2:
        return []
    scores = torch.stack([torch.as_tensor(score(h, i, k, j)) for k in places])
    loss = -torch.log_softmax(scores, 0)[places.index(edge(left, -1))]
    return [loss, *loss_of(h, left, starts), *loss_of(h, right, starts)]


def edge(tree, side):
    return tree if isinstance(tree, int) else edge(tree[side], side)


def splits_of(tree, b):
    if isinstance(tree, int):
        return []
    left, right = tree
    return [(b, edge(left, 0), edge(left, -1), edge(right, -1)), *splits_of(left, b), *splits_of(right, b)]


TREES = [((0, (1, 2)), ((3, 4), 5)), (0, (1, ((2, 3), 4))), (0, 1)]
LENGTHS = torch.tensor([6, 5, 2])
STARTS = torch.tensor([[1] * 6, [1, 1, 0, 1, 1, 0], [1, 1, 0, 0, 0, 0]]).bool()
SPLITS = torch.tensor([split for b, tree in enumerate(TREES) for split in splits_of(tree, b)])


@pytest.mark.parametrize("with_words", [False, True])
def test_is_the_recursion_of_the_paper(with_words):
    trees = [TREES[0], (0, ((1, 2), (3, 4))), TREES[2]] if with_words else TREES
    starts = STARTS if with_words else torch.ones_like(STARTS)
    splits = torch.tensor([split for b, tree in enumerate(trees) for split in splits_of(tree, b)])
    hidden = numbers(3, 6).requires_grad_()
    of_sentences = []
    for h, tree, length, words in zip(hidden, trees, LENGTHS.tolist(), starts, strict=True):
        losses = loss_of(h[:length], tree, [*words, True])
        of_sentences.append(sum(losses) / max(1, len(losses)))
    expected = sum(of_sentences) / 3
    found = tree_regularization(hidden, splits, word_starts=starts, lengths=LENGTHS)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(loss, hidden, retain_graph=True)[0] for loss in (found, expected)]
    torch.testing.assert_close(*gradients)
    assert torch.autograd.gradcheck(
        lambda x: tree_regularization(x, splits, word_starts=starts, lengths=LENGTHS), hidden
    )


def test_minimising_it_finds_the_trees():
    hidden = numbers(3, 6, 8).requires_grad_()
    optimizer = torch.optim.Adam([hidden], lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        loss = tree_regularization(hidden, SPLITS, lengths=LENGTHS)
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    expected = [sorted(split[1:] for split in splits_of(tree, b)) for b, tree in enumerate(TREES)]
    assert [sorted(splits) for splits in tree_splits(hidden, lengths=LENGTHS)] == expected


def test_trees_are_greedy_and_end_at_words():
    hidden = numbers(3, 6)
    for b, (splits, length) in enumerate(zip(tree_splits(hidden, lengths=LENGTHS), LENGTHS.tolist(), strict=True)):
        h = hidden[b, :length]
        assert len(splits) == length - 1
        for i, k, j in splits:
            assert score(h, i, k, j) == max(score(h, i, other, j) for other in range(i, j))
    assert tree_splits(hidden[:1], word_starts=torch.tensor([[1, 0, 1, 0, 0, 0]]).bool()) == [[(0, 1, 5)]]
    assert tree_splits(hidden[:, :0]) == [[], [], []]


def test_padding_has_no_influence():
    hidden = numbers(3, 6)
    expected = tree_regularization(hidden, SPLITS, lengths=LENGTHS)
    past = torch.arange(6) >= LENGTHS[:, None]
    poisoned = hidden.masked_fill(past[..., None], math.nan).requires_grad_()
    loss = tree_regularization(poisoned, SPLITS, lengths=LENGTHS)
    loss.backward()
    assert torch.equal(loss, expected)
    assert not poisoned.grad[past].any()


def test_without_spans_it_is_zero():
    none = torch.zeros(0, 4, dtype=torch.int64)
    hidden = numbers(2, 4).requires_grad_()
    loss = tree_regularization(hidden, none)
    loss.backward()
    assert loss == 0
    assert not hidden.grad.any()
    pair = torch.tensor([[0, 0, 0, 1]])
    assert tree_regularization(hidden, pair) == 0


@pytest.mark.parametrize("dtype", [torch.long, torch.float32])
def test_the_mask_of_words_is_of_booleans(dtype):
    hidden, starts = torch.randn(1, 5, 3), torch.ones(1, 5, dtype=dtype)
    for call in (partial(tree_regularization, hidden, torch.tensor([[0, 0, 1, 4]])), partial(tree_splits, hidden)):
        with pytest.raises(ValueError, match=f"word_starts has dtype {dtype}; expected torch.bool"):
            call(word_starts=starts)

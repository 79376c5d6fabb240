"""Memories that states share: whatever is done with a state, it holds what copies would hold."""

import copy

import pytest
import torch

from structattn.attention import CrossSoftmaxAttention
from structattn.attention.cache import CrossAttentionCache

HEADS, SOURCE, SIZE = 2, 5, 4


def drawn(batch, generator, source=SOURCE, **options):
    """Two parts."""
    shapes = [(batch, heads, source, SIZE) for heads in (HEADS, 1)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64, **options) for shape in shapes]


def holds(state, copies, lengths):
    return torch.equal(state.lengths, lengths) and all(
        torch.equal(part, wanted) for part, wanted in zip(state.tensors, copies, strict=True)
    )


@pytest.mark.parametrize("gradients", [True, False])
def test_a_state_of_a_layer_of_another_size_is_refused(gradients):
    layer, other = CrossSoftmaxAttention(16, 4), CrossSoftmaxAttention(8, 1)
    state = other.initial_state(torch.randn(2, SOURCE, 8))
    with torch.set_grad_enabled(gradients), pytest.raises(ValueError, match=r"key has shape \(2, 1, 5, 8\); expected"):
        layer.step(torch.randn(2, 16), state)


def test_a_cache_holds_lengths_of_its_own():
    copies, lengths = drawn(2, torch.Generator().manual_seed(0)), torch.tensor([2, 3])
    state = CrossAttentionCache.from_tensors(copies, lengths)
    lengths.fill_(5)
    assert holds(state, copies, torch.tensor([2, 3]))


@pytest.mark.parametrize("seed", range(20))
def test_chains_of_choices_hold_what_copies_hold(seed):
    generator = torch.Generator().manual_seed(seed)
    source = seed % 4
    copies, lengths = drawn(9, generator, source), torch.randint(0, source + 1, (9,), generator=generator)
    state = CrossAttentionCache.from_tensors(copies, lengths)
    for _ in range(10):
        size = int(torch.randint(1, 12, (), generator=generator))
        chosen = torch.randint(0, len(lengths), (size,), generator=generator)
        state = state.select(chosen)
        copies, lengths = [part[chosen] for part in copies], lengths[chosen]
        assert holds(state, copies, lengths)
        assert holds(copy.deepcopy(state), copies, lengths)
        wanted = [rows[state.row_indices].transpose(1, 2) for rows in state.rows]
        assert holds(state, wanted, lengths)


def test_choosing_copies_no_rows_until_most_are_not_needed():
    state = CrossAttentionCache.from_tensors(drawn(10, torch.Generator().manual_seed(0)))
    grown = state.select(torch.arange(10).repeat_interleave(4))
    assert all(a is b for a, b in zip(grown.rows, state.rows, strict=True))
    assert grown.select(torch.arange(40)) is grown
    assert grown.select(torch.arange(40).view(10, 4).flip(1).flatten()) is grown  # every place keeps its memory
    few = grown.select(torch.tensor([0, 1, 2, 3, 36]))
    assert {len(rows) for rows in few.rows} == {2 * SOURCE}
    assert {len(rows) for rows in grown.select(torch.arange(24)).rows} == {10 * SOURCE}


def test_copies_made_without_gradients_do_not_stand_in_for_those_with():
    leaves = drawn(3, torch.Generator().manual_seed(0), requires_grad=True)
    state = CrossAttentionCache.from_tensors(leaves).select(torch.tensor([2, 0, 0]))
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert not any(part.requires_grad for part in state.tensors)
    for part in state.tensors:
        part.sum().backward()
    counts = torch.tensor([2.0, 0.0, 1.0], dtype=torch.float64)[:, None, None, None]
    assert all(torch.equal(leaf.grad, counts.expand_as(leaf)) for leaf in leaves)


def test_copies_are_made_once_where_that_is_safe():
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            state = CrossAttentionCache.from_tensors(drawn(3, torch.Generator().manual_seed(0))).select(
                torch.tensor([2, 0, 0])
            )
            assert state.tensors is state.tensors


def test_copies_hold_a_states_own_rows_alone():
    one = CrossAttentionCache.from_tensors(drawn(300, torch.Generator().manual_seed(0))).select(torch.tensor([3]))
    again = copy.deepcopy(one)
    assert {len(rows) for rows in again.rows} == {SOURCE}
    assert again.lengths is None
    assert all(torch.equal(a, b) for a, b in zip(again.tensors, one.tensors, strict=True))

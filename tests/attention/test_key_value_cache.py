"""Rows that states share: whatever is done with a state, it holds what copies would hold."""

import copy

import pytest
import torch

from structattn.attention.cache import KeyValueCache
from structattn.attention.projections import InputProjection

BATCH, HEADS, SIZE = 3, 2, 4


def empty(batch=BATCH, dtype=torch.float64):
    return KeyValueCache.empty(batch, [(HEADS, SIZE), (1, SIZE)], torch.zeros((), dtype=dtype))


def drawn(batch, generator, **options):
    """Rows of one step, for the two parts."""
    return [
        torch.randn(batch, heads, 1, SIZE, generator=generator, dtype=torch.float64, **options) for heads in (HEADS, 1)
    ]


def holds(state, copies):
    return all(torch.equal(part, wanted) for part, wanted in zip(state.tensors, copies, strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_a_tree_of_states_holds_what_copies_hold(seed):
    generator = torch.Generator().manual_seed(seed)

    def below(end):
        return int(torch.randint(0, end, (), generator=generator))

    family = [(empty(), [torch.zeros(BATCH, heads, 0, SIZE, dtype=torch.float64) for heads in (HEADS, 1)])]
    for _ in range(60):
        state, copies = family[below(len(family)) if below(4) == 0 else -1]  # mostly the newest goes on
        act = below(5)
        if act == 0:
            chosen = torch.randint(0, len(state.row_indices), (1 + below(5),), generator=generator)
            state, copies = state.select(chosen), [part[chosen] for part in copies]
        elif act == 1 and below(3) == 0:
            count = below(6)
            state = state.last(count)
            copies = [part[:, :, max(0, part.shape[2] - count) :] for part in copies]
        else:
            new = drawn(len(state.row_indices), generator)
            state, copies = state.append(*new), [torch.cat(pair, 2) for pair in zip(copies, new, strict=True)]
        family.append((state, copies))
    assert all(holds(copy.copy(state), copies) for state, copies in family)
    assert all(holds(KeyValueCache.from_tensors(copies), copies) for _, copies in family)


def test_many_branches_leave_nothing_behind():
    generator = torch.Generator().manual_seed(0)
    trunk = empty()
    for _ in range(5):
        trunk = trunk.append(*drawn(BATCH, generator))
    room = len(trunk.pool.tensors[0])
    for _ in range(200):
        branch = trunk
        for _ in range(4):
            branch = branch.append(*drawn(BATCH, generator))
        assert len(branch.pool.tensors[0]) <= (4 * (5 + 4) + 65) * BATCH
    assert len(trunk.pool.tensors[0]) == room


def test_rows_that_nobody_needs_are_left_out():
    generator = torch.Generator().manual_seed(0)
    state = empty()
    for _ in range(500):
        state = state.append(*drawn(BATCH, generator)).last(3)
        assert len(state.pool.tensors[0]) <= (4 * 3 + 65) * BATCH


def test_choosing_copies_no_rows():
    generator = torch.Generator().manual_seed(0)
    state = empty().append(*drawn(BATCH, generator))
    chosen = state.select(torch.tensor([2, 2, 0, 1]))
    assert chosen.pool is state.pool
    after = chosen.append(*drawn(4, generator))
    assert after.pool is state.pool  # and neither does a further step
    assert state.append(*drawn(BATCH, generator)).pool is not state.pool


def test_gradients_reach_all_rows():
    generator = torch.Generator().manual_seed(0)
    state, leaves = empty(), []
    for _ in range(4):
        leaves += drawn(BATCH, generator, requires_grad=True)
        state = state.append(*leaves[-2:]).select(torch.tensor([1, 1, 2]))
    sum(part.square().sum() for part in state.tensors).backward()
    counts = torch.tensor([0.0, 2.0, 1.0])[:, None, None, None]
    for leaf in leaves:
        assert torch.equal(leaf.grad, 2 * counts * leaf)


@pytest.mark.parametrize("first", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("second", [torch.inference_mode, torch.no_grad])
def test_what_was_begun_in_one_mode_goes_on_in_another(first, second):
    generator = torch.Generator().manual_seed(0)
    steps = [drawn(BATCH, generator) for _ in range(4)]
    with first():
        projection = InputProjection(HEADS * SIZE, 2 * HEADS * SIZE).double()
        state = KeyValueCache.empty(BATCH, [(HEADS, SIZE), (1, SIZE)], projection.weight)
        for new in steps[:2]:
            state = state.append(*(part * 1 for part in new))
    with second():
        for new in steps[2:]:
            state = state.append(*new)
    assert holds(state, [torch.cat(parts, 2) for parts in zip(*steps, strict=True)])


def test_a_copy_goes_its_own_way():
    generator = torch.Generator().manual_seed(0)
    state = empty().append(*drawn(BATCH, generator))
    other, one, two = copy.deepcopy(state), drawn(BATCH, generator), drawn(BATCH, generator)
    wanted = [torch.cat(pair, 2) for pair in zip(state.tensors, one, strict=True)]
    went_on = state.append(*one)
    other.append(*two)
    assert holds(went_on, wanted)


def test_rows_in_half_precision_are_kept_as_the_parameters_are():
    generator = torch.Generator().manual_seed(0)
    state = empty(dtype=torch.float32)
    for _ in range(3):
        state = state.append(*(part.bfloat16() for part in drawn(BATCH, generator)))
    assert {part.dtype for part in state.tensors} == {torch.float32}


def test_what_others_have_written_does_not_stay():
    generator = torch.Generator().manual_seed(0)
    state = empty(500)
    for _ in range(20):
        state = state.append(*drawn(500, generator))
    state = state.select(torch.tensor([7]))
    for _ in range(100):
        state = state.append(*drawn(1, generator))
        assert len(state.rows[0]) <= 4 * (state.num_steps + 65)


def test_rows_of_more_digits_are_kept_with_them():
    generator = torch.Generator().manual_seed(0)
    one, two, three = (drawn(BATCH, generator) for _ in range(3))
    state = empty(dtype=torch.float32).append(*(part.float() for part in one)).append(*two)
    wanted = [torch.cat([a.float().double(), b], 2) for a, b in zip(one, two, strict=True)]
    assert holds(state, wanted)
    assert holds(state.append(*three), [torch.cat(pair, 2) for pair in zip(wanted, three, strict=True)])


def test_copies_hold_a_states_own_rows_alone():
    generator = torch.Generator().manual_seed(0)
    state = empty(300)
    for _ in range(10):
        state = state.append(*drawn(300, generator))
    one = state.select(torch.tensor([3]))
    again = copy.deepcopy(one)
    assert {len(rows) for rows in again.rows} == {10}
    assert holds(again, one.tensors)


def test_gradients_reach_rows_that_were_there_before():
    generator = torch.Generator().manual_seed(0)
    leaves, new = drawn(BATCH, generator, requires_grad=True), drawn(BATCH, generator)
    state = KeyValueCache.from_tensors(leaves)
    with torch.no_grad():
        state.append(*new)
    for part in state.append(*new).tensors:
        part.sum().backward()
    assert all(torch.equal(leaf.grad, torch.ones_like(leaf)) for leaf in leaves)

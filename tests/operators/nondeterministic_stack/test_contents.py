"""The contents of the stack at each depth, against the enumeration of all runs."""

import math

import pytest
import torch
from torch.testing import assert_close

from structattn.operators import nondeterministic_stack_best_run, nondeterministic_stack_weights
from structattn.operators.nondeterministic_stack import StackAction, block_contents
from structattn.operators.nondeterministic_stack.contents import nondeterministic_stack_contents

SIZES = [(6, 1, 1), (5, 1, 2), (4, 2, 1), (4, 2, 2), (3, 1, 3), (2, 2, 2), (1, 2, 2)]
DEPTHS = 5


def enumerated(runs, symbols, depths=DEPTHS):
    """Height, P(height >= d), positions and symbols from the runs that end at times 0 .. n."""
    time = len(runs) - 1
    sizes = (time,), (time, depths), (time, depths, time + 1), (time, depths, symbols)
    height, at_least, positions, names = (torch.zeros(size, dtype=torch.float64) for size in sizes)
    for t in range(1, time + 1):
        top = max(run.log_weight for run in runs[t])
        total = math.fsum(math.exp(run.log_weight - top) for run in runs[t])
        for run in runs[t]:
            share = math.exp(run.log_weight - top) / total
            height[t - 1] += share * len(run.stack)
            for depth, (symbol, when) in enumerate(reversed(run.stack[-depths:])):
                at_least[t - 1, depth] += share
                positions[t - 1, depth, when] += share
                names[t - 1, depth, symbol] += share
    return height, at_least, positions, names


def tensors(contents, b=0):
    return tuple(x[b] for x in (contents.height, contents.at_least, contents.positions, contents.symbols))


@pytest.mark.covering(1)
@pytest.mark.parametrize("definition", [False, True])
@pytest.mark.parametrize(("time", "states", "symbols"), SIZES)
def test_contents_are_those_of_all_runs(random_inputs, all_runs, time, states, symbols, definition):
    inputs = random_inputs(1, time, states, symbols, scale=2.0)
    expected = enumerated(all_runs(*(x[0] for x in inputs.logits)), symbols)
    found = tensors(nondeterministic_stack_contents(*inputs.logits, DEPTHS, definition=definition))
    for got, want in zip(found, expected, strict=True):
        assert_close(got, want, rtol=0, atol=1e-13)


@pytest.mark.parametrize("definition", [False, True])
def test_items_older_than_the_window_are_not_popped(random_inputs, all_runs, definition):
    inputs = random_inputs(1, 5, 1, 2, scale=2.0, seed=3)
    expected = enumerated(all_runs(*(x[0] for x in inputs.logits), window=2), 2)
    found = tensors(nondeterministic_stack_contents(*inputs.logits, DEPTHS, window=2, definition=definition))
    for got, want in zip(found, expected, strict=True):
        assert_close(got, want, rtol=0, atol=1e-13)


@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
def test_the_fast_form_equals_the_definition(random_inputs, scale):
    inputs = random_inputs(1, 23, 2, 3, scale=scale)
    fast = nondeterministic_stack_contents(*inputs.logits)
    definition = nondeterministic_stack_contents(*inputs.logits, definition=True)
    for got, want in zip(tensors(fast), tensors(definition), strict=True):
        assert_close(got, want, rtol=0, atol=1e-11)


@pytest.mark.covering(1)
@pytest.mark.parametrize("window", [None, 1, 6])
@pytest.mark.parametrize(("time", "block"), [(1, 1), (2, 1), (7, 2), (22, 5), (24, 5), (25, 5)])
def test_blocks_of_any_size_equal_the_definition(random_inputs, monkeypatch, time, block, window):
    monkeypatch.setattr(block_contents, "_BLOCK", block)
    for states, symbols, depths in ((1, 1, 1), (2, 3, 4), (3, 2, time + 2)):
        logits = random_inputs(1, time, states, symbols).logits
        fast = nondeterministic_stack_contents(*logits, depths, window=window)
        definition = nondeterministic_stack_contents(*logits, depths, window=window, definition=True)
        for got, want in zip(tensors(fast), tensors(definition), strict=True):
            assert_close(got, want, rtol=0, atol=1e-13)


def test_forbidden_actions_are_within_range_and_equal_the_definition(random_inputs):
    logits = random_inputs(1, 70, 2, 2).logits
    logits[0][:, ::3] = -torch.inf
    logits[1][:, :, 0, :, 1] = -torch.inf
    logits[2][:, 1::2, :, 0] = -torch.inf
    logits[2][:, :2] += 500  # the bottom cannot be popped
    assert block_contents.block_contents(*(x[0] for x in logits), None, 3) is not None
    fast = nondeterministic_stack_contents(*logits, 3)
    definition = nondeterministic_stack_contents(*logits, 3, definition=True)
    for got, want in zip(tensors(fast), tensors(definition), strict=True):
        assert_close(got, want, rtol=0, atol=1e-12)


def test_sums_and_the_top_at_a_length_beyond_one_block(random_inputs):
    inputs = random_inputs(2, 140, 2, 2)
    lengths = torch.tensor([140, 3])
    found = nondeterministic_stack_contents(*inputs.logits, 3, lengths=lengths)
    weights = nondeterministic_stack_weights(*inputs.logits, lengths=lengths)
    assert_close(found.positions[:, :, 0], weights.sum((2, 3)), rtol=0, atol=1e-13)
    assert_close(found.symbols[:, :, 0], weights.sum((2, 4)), rtol=0, atol=1e-13)
    for parts in (found.positions, found.symbols):
        assert_close(parts.sum(-1), found.at_least, rtol=0, atol=1e-13)
    assert all((x[1, 3:] == 0).all() for x in (found.height, found.at_least, found.positions, found.symbols))
    alone = nondeterministic_stack_contents(*(x[1:, :3] for x in inputs.logits), 3)
    assert_close(found.positions[1, :3, :, :4], alone.positions[0], rtol=0, atol=0)


def traced(run):
    """The stack of (symbol, step of the push), bottom first, after each step of a best run."""
    stack, stacks = [(0, 0)], []
    steps = zip(run.actions[0].tolist(), run.symbols[0].tolist(), strict=True)
    for t, (action, symbol) in enumerate(steps, start=1):
        if action == StackAction.PUSH:
            stack.append((symbol, t))
        elif action == StackAction.REPLACE:
            stack[-1] = (symbol, stack[-1][1])
        else:
            stack.pop()
            assert stack[-1][0] == symbol
        stacks.append(list(reversed(stack)))
    return stacks


def test_the_contents_of_a_certain_run_are_those_of_the_most_probable_run(random_inputs):
    inputs = random_inputs(1, 12, 2, 2)
    run = nondeterministic_stack_best_run(*inputs.logits)
    state, symbol = 0, 0
    logits = [torch.full_like(x, -torch.inf) for x in inputs.logits]
    for t in range(12):
        action, after, top = (int(x[0, t]) for x in (run.actions, run.states, run.symbols))
        index = (0, t, state, symbol, after) if action == StackAction.POP else (0, t, state, symbol, after, top)
        logits[action][index] = inputs.logits[action][index]
        state, symbol = after, top
    found = nondeterministic_stack_contents(*logits, 12)
    for t, items in enumerate(traced(run)):
        assert found.height[0, t] == pytest.approx(len(items), abs=1e-12)
        for depth, (name, when) in enumerate(items):
            assert found.symbols[0, t, depth, name] == pytest.approx(1)
            assert found.positions[0, t, depth, when] == pytest.approx(1)


def test_a_sequence_beyond_the_range_of_doubles_is_computed_by_the_definition(random_inputs, all_runs):
    """One state and symbol: pushes of weight e^-800 that later pops make up for."""
    inputs = random_inputs(1, 6, 1, 1)
    push, replace, pop = inputs.logits
    push[0, :3] -= 800
    pop[0, 3:] += 800
    assert block_contents.block_contents(push[0], replace[0], pop[0], None, DEPTHS) is None
    found = tensors(nondeterministic_stack_contents(push, replace, pop, DEPTHS))
    for got, want in zip(found, enumerated(all_runs(push[0], replace[0], pop[0]), 1), strict=True):
        assert_close(got, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("definition", [False, True])
def test_nothing_lies_on_a_stack_without_runs(random_inputs, definition):
    inputs = random_inputs(1, 4, 2, 2)
    for x in inputs.logits:
        x[0, 2] = -torch.inf
    found = tensors(nondeterministic_stack_contents(*inputs.logits, DEPTHS, definition=definition))
    assert all((x[2:] == 0).all() and (x[:2] != 0).any() for x in found)


def test_no_steps_and_no_sequences(random_inputs):
    for batch, time in ((1, 0), (0, 3)):
        found = nondeterministic_stack_contents(*random_inputs(batch, time, 2, 3).logits, 4)
        assert found.positions.shape == (batch, time, 4, time + 1)
        assert found.symbols.shape == (batch, time, 4, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda logits: [*logits, 0], "depths=0; expected at least 1"),
        (lambda logits: [logits[0] * torch.nan, *logits[1:]], "sequence 0 has a logit that is NaN or"),
        (lambda logits: [logits[0], logits[1], logits[0]], "pop has shape"),
    ],
)
def test_errors(random_inputs, change, message):
    with pytest.raises(ValueError, match=message):
        nondeterministic_stack_contents(*change(random_inputs(1, 3, 2, 2).logits))

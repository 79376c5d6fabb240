"""Single steps by the Triton kernels against the definition, and their states as values that share columns."""

import copy

import pytest
import torch

from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack,
    nondeterministic_stack_initial_state,
    nondeterministic_stack_step,
)
from structattn.operators.nondeterministic_stack.arguments import split_logits
from structattn.operators.stack_rnn.stack_states import empty_stack
from structattn.operators.stack_rnn.stacks import RecurrentStack

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, where NaN or inf enters


def first(inputs, device, dtype=torch.float64, implementation="gpu", **options):
    batch, _, states, symbols = inputs.push.shape[:4]
    bottom = inputs.bottom.to(device, dtype)
    return nondeterministic_stack_initial_state(
        bottom, batch, states, symbols, implementation=implementation, **options
    )


def stepped(inputs, state, times):
    """Readings (B, T, ..) of the steps at these times, and the state after them."""
    readings = []
    for t in times:
        reading, state = nondeterministic_stack_step(*(x[:, t].to(state.reading) for x in inputs.all[:4]), state)
        readings.append(reading)
    return torch.stack(readings, 1), state


def assert_steps_equal_the_definition(inputs, device, dtype=torch.float64, tolerance=1e-12, **options):
    found, _ = stepped(inputs, first(inputs, device, dtype, **options), range(inputs.push.shape[1]))
    rounded = inputs.to(dtype).to(torch.float64)
    wanted = nondeterministic_stack(*rounded.all, implementation="reference", **options)
    assert found.dtype == dtype
    torch.testing.assert_close(found.cpu().double(), wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    return found.cpu()


@pytest.mark.parametrize(
    ("batch", "time", "states", "symbols", "vector", "window", "dtype"),
    [
        (1, 4, 2, 3, 1, None, torch.float64),
        (1, 4, 1, 2, 2, 1, torch.float32),
        (2, 1, 2, 2, 0, None, torch.float64),
        (0, 2, 2, 2, 1, None, torch.float64),
        pytest.param(2, 9, 2, 3, 5, None, torch.float32, marks=pytest.mark.slow),
        pytest.param(2, 9, 3, 2, 1, 3, torch.float64, marks=pytest.mark.slow),
        pytest.param(1, 7, 3, 3, 2, 4, torch.float64, marks=pytest.mark.slow),
        pytest.param(2, 6, 1, 1, 3, 2, torch.float32, marks=pytest.mark.slow),
        pytest.param(1, 24, 2, 1, 1, None, torch.float64, marks=pytest.mark.slow),
    ],
)
def test_steps_equal_the_whole(random_inputs, gpu, batch, time, states, symbols, vector, window, dtype):
    inputs = random_inputs(batch, time, states, symbols, vector, scale=2.0)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    assert_steps_equal_the_definition(inputs, gpu, dtype, tolerance, window=window)


@pytest.mark.gpu
@pytest.mark.parametrize(("states", "symbols", "time", "window"), [(2, 3, 48, None), (3, 3, 40, 7), (4, 3, 20, None)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_equal_the_whole_at_full_size(random_inputs, cuda, states, symbols, time, window, dtype):
    inputs = random_inputs(3, time, states, symbols, 5, scale=2.0)
    tolerance = 1e-11 if dtype == torch.float64 else 1e-5
    assert_steps_equal_the_definition(inputs, cuda, dtype, tolerance, window=window)


@pytest.mark.parametrize("scale", [1e4, pytest.param(1e8, marks=pytest.mark.slow)])
def test_weights_of_any_size_are_held(random_inputs, gpu, scale):
    assert_steps_equal_the_definition(random_inputs(1, 3, 2, 1, 1, scale=scale), gpu, tolerance=1e-6)


def test_what_no_double_holds_and_comes_back_is_found_again(random_inputs, gpu):
    inputs = random_inputs(1, 4, 1, 1, 1, scale=0.0)
    inputs.push[0, 0], inputs.push[0, 1:], inputs.pop[0, 2] = -800.0, -torch.inf, 1600.0
    found = assert_steps_equal_the_definition(inputs, gpu)
    torch.testing.assert_close(found[0, 2, 0, 0], inputs.bottom)  # the pop weighs e^800 of the rest


def test_beyond_the_limit_of_the_definition_readings_are_nan(random_inputs, gpu):
    inputs = random_inputs(2, 2, 1, 1, 1)
    for x in inputs.logits:
        x[1, 1] += 1e14
    found, _ = stepped(inputs, first(inputs, gpu), range(2))
    assert found.isnan().flatten(2).all(2).tolist() == [[False, False], [False, True]]
    with pytest.raises(ValueError, match="exceed"):
        nondeterministic_stack(*inputs.all, implementation="reference")


def test_forbidden_transitions_nan_and_infinity(random_inputs, gpu):
    inputs = random_inputs(3, 3, 1, 2, 1)
    inputs.push[0, :, 0, 1] = -torch.inf
    for x in inputs.logits:
        x[0, 1] = -torch.inf  # nothing is allowed from here on
    inputs.replace[1, 1, 0, 0, 0, 0] = torch.nan
    inputs.pop[2, 0, 0, 0, 0] = torch.inf  # the bottom is not popped, but this is no logit
    found, _ = stepped(inputs, first(inputs, gpu), range(3))
    wanted, _ = stepped(inputs, first(inputs, "cpu", implementation="cpu"), range(3))
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert not found[0, 1:].any()
    assert found.isnan().flatten(2).all(2).tolist() == [[False] * 3, [False, True, True], [True] * 3]


def tree(inputs, device, implementation):
    """Readings of beams of three hypotheses, and of one that is extended once more from an earlier state."""
    state = first(inputs, device, implementation=implementation)
    begin, state = stepped(inputs, state, [0, 1])
    chosen = state.select(torch.tensor([2, 0, 0], device=device))
    third, beam = stepped(inputs, chosen, [2])
    fourth, _ = stepped(inputs, beam.select(torch.tensor([1, 1, 2], device=device)), [0])
    again, _ = stepped(inputs, state, [1])
    return torch.cat([begin, third, fourth, again], 1)


def test_beams_share_their_past(random_inputs, gpu):
    inputs = random_inputs(3, 3, 1, 2, 1)
    torch.testing.assert_close(tree(inputs, gpu, "gpu").cpu(), tree(inputs, "cpu", "reference"), rtol=0, atol=1e-13)
    _, state = stepped(inputs, first(inputs, gpu), [0])
    beam = state.select(torch.tensor([2, 0], device=gpu))
    assert beam.columns is state.columns
    assert torch.equal(beam.addresses, state.addresses[[2, 0]])


@pytest.mark.slow
@pytest.mark.parametrize("states_symbols", [(2, 2), (1, 3)])
def test_larger_beams(random_inputs, gpu, states_symbols):
    inputs = random_inputs(3, 3, *states_symbols, 3, scale=3.0)
    torch.testing.assert_close(tree(inputs, gpu, "gpu").cpu(), tree(inputs, "cpu", "reference"), rtol=0, atol=1e-12)


def test_a_copy_holds_its_own_columns_only(random_inputs, gpu):
    inputs = random_inputs(2, 3, 1, 1, 1)
    _, state = stepped(inputs, first(inputs, gpu), [0, 1])
    wanted, _ = stepped(inputs, state, [2])
    copied = copy.deepcopy(state.select(torch.tensor([1], device=gpu)))
    for column in state.columns:
        column.fill_(torch.nan)
    assert [len(column) for column in copied.columns] == [1, 1, 1]
    second = type(inputs)(*(x[1:] for x in inputs.all[:4]), inputs.bottom)
    assert torch.equal(stepped(second, copied, [2])[0], wanted[1:])


def test_where_a_derivative_is_asked_for_the_definition_takes_over(random_inputs, gpu):
    inputs = random_inputs(2, 3, 1, 2, 1)
    leaves = type(inputs)(*(x.to(gpu, copy=True).requires_grad_() for x in inputs.all))
    states = []
    for implementation in ("gpu", "reference"):
        _, state = stepped(inputs, first(inputs, gpu, implementation=implementation), [0])
        states.append(stepped(inputs, state.select(torch.tensor([1, 0], device=gpu)), [1])[1])
    (reading, after), (wanted, exact) = (stepped(leaves, state, [2]) for state in states)
    torch.testing.assert_close(reading, wanted, rtol=0, atol=1e-13)
    results = [torch.autograd.grad(x.square().sum(), leaves.all[:4]) for x in (reading, wanted)]
    torch.testing.assert_close(*results, rtol=0, atol=1e-13)
    assert after.select(torch.tensor([0], device=gpu)).reading.requires_grad
    assert type(first(leaves, gpu)) is type(exact)


def test_logits_are_read_where_a_projection_leaves_them(random_inputs, gpu):
    inputs = random_inputs(2, 2, 2, 1, 1)
    rows = torch.cat([x.flatten(4) for x in inputs.logits], -1).flatten(2).to(gpu)  # (B, T, A)
    parts = [split_logits(rows[:, t], 2, 1) for t in range(2)]
    assert not any(x.is_contiguous() for x in parts[0])
    state = first(inputs, gpu)
    for t, logits in enumerate(parts):
        reading, state = nondeterministic_stack_step(*logits, inputs.values[:, t].to(gpu), state)
    wanted = nondeterministic_stack(*inputs.all, implementation="reference")
    torch.testing.assert_close(reading.cpu(), wanted[:, 1], rtol=0, atol=1e-13)


def test_stacks_of_recurrent_networks_take_the_same_steps(random_inputs, gpu):
    inputs = random_inputs(2, 2, 1, 2, 1)
    actions = torch.cat([x.flatten(4) for x in inputs.logits], -1).flatten(2).to(gpu)
    readings = []
    for implementation in ("gpu", "reference"):
        stack = empty_stack(RecurrentStack("nondeterministic", 1, 1, 2), inputs.bottom.to(gpu), 2, implementation)
        for t in range(2):
            stack = stack.after(actions[:, t], inputs.values[:, t].to(gpu)).select(torch.tensor([1, 0], device=gpu))
        readings.append(stack.reading())
    torch.testing.assert_close(*readings, rtol=0, atol=1e-13)

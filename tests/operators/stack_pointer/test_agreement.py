"""Stack pointer attention: kernels against the definition, and the definition against enumeration and theorems."""

import itertools

import pytest
import torch

from structattn.operators import stack_pointer, stack_pointer_step, stack_pointer_weights, superposition_stack
from structattn.operators.stack_pointer.cpu import map_is_cheaper, readings_by_map, readings_by_stack

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
IMPLEMENTATIONS = ["reference", "cpu"]
WAYS = [readings_by_map, readings_by_stack]


def with_gradients(readings, leaves, cotangent):
    return readings, *torch.autograd.grad(readings, leaves, cotangent)


def random_like(tensor):
    return torch.randn(tensor.shape, generator=torch.Generator().manual_seed(9), dtype=tensor.dtype)


@pytest.mark.covering(2)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("time", [1, 2, 7, 8, 63, 130])
@pytest.mark.parametrize("vector", [1, 7, 33])
@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
def test_both_ways_give_the_readings(random_inputs, assert_close, way, dtype, time, vector, scale):
    actions, values = random_inputs(3, time, vector, dtype, scale=scale)
    lengths = torch.tensor([time, time // 2, 0])
    readings = way(actions, values, lengths)
    cotangent = random_like(readings)
    fast = with_gradients(readings, (actions, values), cotangent)
    exact = [leaf.detach().double().requires_grad_() for leaf in (actions, values)]
    definition = stack_pointer(*exact, lengths=lengths, implementation="reference")
    for result, expected in zip(fast, with_gradients(definition, exact, cotangent.double()), strict=True):
        assert result.dtype == dtype
        assert_close(result, expected, TOLERANCE[dtype], floor=cotangent.norm().item())


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("time", [1, 2, 3, 7, 8, 9, 63, 64, 130])
@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
def test_the_kernel_gives_the_map(random_inputs, assert_close, dtype, time, scale):
    actions, _ = random_inputs(3, time, 1, dtype, scale=scale)
    lengths = torch.tensor([time, time // 2, 0])
    weights = stack_pointer_weights(actions, lengths=lengths, implementation="cpu")
    cotangent = random_like(weights)
    exact = actions.detach().double().requires_grad_()
    definition = stack_pointer_weights(exact, lengths=lengths, implementation="reference")
    fast = with_gradients(weights, [actions], cotangent)
    for result, expected in zip(fast, with_gradients(definition, [exact], cotangent.double()), strict=True):
        assert_close(result, expected, TOLERANCE[dtype], floor=cotangent.norm().item())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("time", [1, 2, 3, 4, 7, 12])
def test_actions_are_taken_as_they_are(random_inputs, assert_close, way, time):
    actions, values = random_inputs(3, time, 5, normalized=False)
    readings = way(actions, values, None)
    cotangent = random_like(readings)
    definition = stack_pointer(actions, values, implementation="reference")
    found = with_gradients(readings, (actions, values), cotangent)
    for result, expected in zip(found, with_gradients(definition, (actions, values), cotangent), strict=True):
        assert_close(result, expected, 1e-12)


def test_the_choice_of_the_way_changes_nothing_else(random_inputs):
    assert map_is_cheaper(80, 64)
    assert not map_is_cheaper(80, 4)
    for time, vector in ((20, 16), (20, 4)):
        actions, values = random_inputs(2, time, vector)
        way = readings_by_map if map_is_cheaper(time, vector) else readings_by_stack
        assert torch.equal(stack_pointer(actions, values, implementation="cpu"), way(actions, values, None))


def top_after(chosen):
    """The step, counted from 1, that is on top after the actions chosen; 0 for the empty stack."""
    stack = []
    for step, action in enumerate(chosen, start=1):
        if action == 0:
            stack.append(step)
        elif action == 2 and stack:
            stack.pop()
    return stack[-1] if stack else 0


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("time", [1, 2, 3, 5, 6])
def test_a_row_is_the_law_of_the_top_over_all_action_sequences(random_inputs, implementation, time):
    actions, _ = random_inputs(1, time, 1)
    law = torch.zeros(time + 1, dtype=torch.float64)
    for chosen in itertools.product(range(3), repeat=time):
        law[top_after(chosen)] += actions[0, range(time), chosen].prod().item()
    weights = stack_pointer_weights(actions, implementation=implementation)
    torch.testing.assert_close(weights[0, -1], law, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_hard_actions_point_at_the_top(implementation):
    # Theorem 3.1
    chosen = torch.randint(3, (20, 40), generator=torch.Generator().manual_seed(3))
    actions = torch.nn.functional.one_hot(chosen, 3).double()
    weights = stack_pointer_weights(actions, implementation=implementation)
    tops = torch.tensor([[top_after(row[: t + 1]) for t in range(40)] for row in chosen.tolist()])
    assert torch.equal(weights, torch.nn.functional.one_hot(tops, 41).double())


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_rows_are_distributions(random_inputs, implementation):
    # Theorem 3.2
    actions, _ = random_inputs(3, 63, 1, scale=3.0)
    weights = stack_pointer_weights(actions, implementation=implementation)
    assert (weights >= 0).all()
    assert (weights.triu(2) == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 63, dtype=torch.float64), rtol=1e-13, atol=0)


@pytest.mark.parametrize("normalized", [True, False])
def test_a_superposition_stack_full_of_the_first_value_is_the_same(random_inputs, assert_close, normalized):
    time = 9
    actions, values = random_inputs(3, time, 4, normalized=normalized)
    expected = stack_pointer(actions, values, implementation="reference")
    for implementation in IMPLEMENTATIONS:
        full = superposition_stack(actions, values[:, 1:], initial=values[:, 0], implementation=implementation)
        assert_close(full, expected, 1e-13)
    # The same with nothing but pushes: one more of the first value than can be popped.
    fill = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64).expand(3, time + 1, 3)
    filled = superposition_stack(
        torch.cat([fill, actions], 1), torch.cat([values[:, :1].expand(-1, time + 1, -1), values[:, 1:]], 1)
    )
    assert_close(filled[:, time + 1 :], expected, 1e-13)


def test_weights_reproduce_the_readings(random_inputs, assert_close):
    actions, values = random_inputs(2, 8, 3)
    lengths = torch.tensor([8, 5])
    weights = stack_pointer_weights(actions, lengths=lengths)
    assert weights.shape == (2, 8, 9)
    assert_close(weights @ values, stack_pointer(actions, values, lengths=lengths), 1e-14)


@pytest.mark.parametrize("normalized", [True, False])
def test_step_by_step_equals_the_whole(random_inputs, assert_close, normalized):
    actions, values = random_inputs(2, 8, 3, normalized=normalized)
    stack, readings = values[:, :1], []
    for step in range(8):
        stack = stack_pointer_step(stack, actions[:, step], values[:, step + 1])
        readings.append(stack[:, 0])
    whole = stack_pointer(actions, values)
    cotangent = random_like(whole)
    found = with_gradients(torch.stack(readings, 1), (actions, values), cotangent)
    for result, expected in zip(found, with_gradients(whole, (actions, values), cotangent), strict=True):
        assert_close(result, expected, 1e-13)


def test_a_run_by_hand():
    push, noop, pop = torch.eye(3, dtype=torch.float64)
    actions = torch.stack([pop, push, push, noop, pop, pop, pop])[None]
    values = torch.arange(8, dtype=torch.float64)[None, :, None]
    assert stack_pointer(actions, values).flatten().tolist() == [0, 2, 3, 3, 2, 0, 0]

"""The rules of all operators: lengths, empty sizes, NaN, extreme numbers, precision, refusals."""

import pytest
import torch

from structattn.operators import stack_pointer, stack_pointer_weights
from structattn.operators.stack_pointer.cpu import readings_by_map, readings_by_stack


def by_definition(actions, values, lengths=None):
    return stack_pointer(actions, values, lengths=lengths, implementation="reference")


READINGS = [by_definition, readings_by_map, readings_by_stack]


def outcome(way, actions, values, cotangent, lengths=None):
    readings = way(actions, values, lengths)
    return readings, *torch.autograd.grad(readings, (actions, values), cotangent)


def cut(result, time):
    """The first ``time`` steps of readings and of the actions' gradient, and the values of those steps."""
    return [result[0][:, :time], result[1][:, :time], result[2][:, : time + 1]]


@pytest.mark.parametrize("way", READINGS)
def test_past_the_length_nothing_enters_and_nothing_leaves(random_inputs, way):
    clean_actions, clean_values = random_inputs(3, 6, 4)
    lengths = torch.tensor([6, 2, 0])
    past = torch.arange(6) >= lengths[:, None]
    past_values = torch.cat([lengths[:, None] == 0, past], dim=1)
    cotangent = torch.randn(3, 6, 4, dtype=torch.float64).masked_fill(past[..., None], float("nan"))
    actions = clean_actions.detach().masked_fill(past[..., None], float("nan")).requires_grad_()
    values = clean_values.detach().masked_fill(past_values[..., None], float("inf")).requires_grad_()
    results = outcome(way, actions, values, cotangent, lengths)
    for result, beyond in zip(results, (past, past, past_values), strict=True):
        assert (result[beyond] == 0).all()
        assert result.isfinite().all()
    alone = outcome(way, clean_actions[1:2, :2], clean_values[1:2, :3], cotangent[1:2, :2])
    for result, expected in zip(cut([r[1:2] for r in results], 2), alone, strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("implementation", ["reference", "cpu"])
def test_past_the_length_the_map_is_empty(random_inputs, implementation):
    actions, _ = random_inputs(3, 6, 1)
    lengths = torch.tensor([6, 2, 0])
    past = torch.arange(6) >= lengths[:, None]
    poisoned = actions.detach().masked_fill(past[..., None], float("nan")).requires_grad_()
    weights = stack_pointer_weights(poisoned, lengths=lengths, implementation=implementation)
    cotangent = torch.ones_like(weights).masked_fill(past[..., None], float("nan"))
    (gradient,) = torch.autograd.grad(weights, poisoned, cotangent)
    assert (weights[past] == 0).all()
    assert (gradient[past] == 0).all()
    assert weights.isfinite().all()
    assert gradient.isfinite().all()
    torch.testing.assert_close(weights[0], stack_pointer_weights(actions)[0])


@pytest.mark.parametrize("way", READINGS)
@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3), (2, 4, 0), (0, 0, 0)])
def test_empty_sizes(random_inputs, way, shape):
    actions, values = random_inputs(*shape)
    readings = way(actions, values, None)
    assert readings.shape == shape
    (readings.sum() + 0 * actions.sum() + 0 * values.sum()).backward()
    assert actions.grad.shape == actions.shape
    assert values.grad.shape == values.shape
    assert (values.grad == 0).all() or shape[1]
    batch, time, _ = shape
    assert stack_pointer_weights(actions).shape == (batch, time, time + 1)


@pytest.mark.parametrize("way", READINGS)
def test_nan_in_a_value_reaches_only_its_own_column_and_later_steps(random_inputs, way):
    actions, values = random_inputs(2, 11, 3)
    with torch.no_grad():
        values[0, 4, 1] = float("nan")
        values[1, 0, 2] = float("nan")
    expected = torch.zeros(2, 11, 3, dtype=torch.bool)
    expected[0, 3:, 1] = True
    expected[1, :, 2] = True
    assert torch.equal(way(actions, values, None).isnan(), expected)


@pytest.mark.parametrize("way", READINGS)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_nan_in_an_action_reaches_only_its_own_sequence_and_later_steps(random_inputs, way, which):
    actions, values = random_inputs(2, 11, 3)
    with torch.no_grad():
        actions[0, 3, which] = float("nan")
    expected = torch.zeros(2, 11, dtype=torch.bool)
    expected[0, 3:] = True
    assert torch.equal(way(actions, values, None).isnan().any(-1), expected)


def test_nan_in_an_action_leaves_what_was_pushed_later(random_inputs):
    actions, _ = random_inputs(1, 20, 1)
    clean = stack_pointer_weights(actions, implementation="cpu")
    with torch.no_grad():
        actions[0, 3] = float("nan")
    weights = stack_pointer_weights(actions, implementation="cpu")
    assert torch.equal(weights[:, :3], clean[:, :3])
    assert torch.equal(weights[..., 5:], clean[..., 5:])
    assert weights[:, 3:, :5].tril(3).isnan().any(-1).all()


def test_what_the_last_call_left_in_memory_is_not_read(random_inputs):
    actions, values = random_inputs(2, 45, 20)
    poison = [torch.full_like(leaf, float("nan")).requires_grad_() for leaf in (actions, values)]
    cotangent = torch.ones(2, 45, 20, dtype=torch.float64)
    before = outcome(readings_by_map, actions, values, cotangent)
    outcome(readings_by_map, *poison, cotangent)
    for result, expected in zip(outcome(readings_by_map, actions, values, cotangent), before, strict=True):
        assert torch.equal(result, expected)


@pytest.mark.parametrize("way", READINGS)
def test_extreme_finite_inputs_stay_finite(random_inputs, way):
    for scale in (0.0, 1e-40, 88.0, 1e4, -1e4):
        actions, values = random_inputs(2, 9, 3, torch.float32, scale=100.0)
        values = (values.detach() * scale).requires_grad_()
        for result in outcome(way, actions, values, torch.ones(2, 9, 3)):
            assert result.isfinite().all()


@pytest.mark.parametrize("way", READINGS)
def test_strided_arguments(random_inputs, way):
    actions, values = random_inputs(2, 5, 6)
    lengths = torch.tensor([5, 9, 3, 9])[::2]
    expected = way(actions, values, lengths)
    wide = torch.randn(2, 6, 20, dtype=torch.float64)
    with torch.no_grad():
        wide[:, :5, 3:6], wide[..., 8:20:2] = actions, values
    assert torch.equal(way(wide[:, :5, 3:6], wide[..., 8:20:2], lengths), expected)


@pytest.mark.parametrize("way", [readings_by_map, readings_by_stack])
def test_threads_do_not_change_a_sum(random_inputs, assert_same_by_threads, way):
    actions, values = random_inputs(7, 150, 40, torch.float32)
    assert_same_by_threads(lambda: outcome(way, actions, values, torch.ones(7, 150, 40)))


def test_later_steps_change_no_earlier_bit(random_inputs):
    actions, values = random_inputs(2, 20, 16)
    changed = [leaf.detach().clone() for leaf in (actions, values)]
    changed[0][:, 9:] = changed[0][:, 9:].flip(-1)
    changed[1][:, 10:] = 5
    assert torch.equal(stack_pointer(*changed)[:, :9], stack_pointer(actions, values)[:, :9])


def test_low_precision_is_computed_in_float32(random_inputs):
    actions, values = (leaf.detach() for leaf in random_inputs(2, 30, 40, torch.float32))
    exact = stack_pointer(actions.bfloat16().float(), values.bfloat16().float())
    result = stack_pointer(actions.bfloat16(), values.bfloat16())
    assert result.dtype == torch.bfloat16
    assert torch.equal(result, exact.bfloat16())
    assert stack_pointer_weights(actions.half()).dtype == torch.float16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = stack_pointer(actions.bfloat16().float(), values.bfloat16())
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed, exact)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": torch.zeros(2, 4, 2)}, r"actions has shape \(2, 4, 2\); expected \(B, T, 3\)"),
        (
            {"values": torch.zeros(2, 4, 3)},
            r"values has shape \(2, 4, 3\); expected \(B, T \+ 1, d\) = \(2, 5, 'any'\)",
        ),
        ({"values": torch.zeros(2, 5, 3).double()}, "float64"),
        ({"values": torch.zeros(2, 5, 3).long()}, "int64"),
        ({"lengths": torch.tensor([4.0, 1.0])}, "lengths: integers"),
    ],
)
def test_refusals(change, message):
    arguments = {"actions": torch.zeros(2, 4, 3), "values": torch.zeros(2, 5, 3)} | change
    with pytest.raises(ValueError, match=message):
        stack_pointer(**arguments)

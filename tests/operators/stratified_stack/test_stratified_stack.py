"""The stratified stack: hand-worked cases, its recursion written out, the fast forms against the definition."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from structattn.operators.common import implementation as choice
from structattn.operators.stratified_stack import (
    StratifiedAction,
    stratified_stack,
    stratified_stack_weights,
    stratified_step,
)

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
IMPLEMENTATIONS = ["reference", "cpu", "gpu"]


@pytest.fixture(autouse=True)
def _gpu_form_on_a_cpu(monkeypatch):
    """The form for GPUs consists of torch's own operations."""
    monkeypatch.setattr(choice, "why_no_gpu_kernel", lambda _: None)


def inputs(batch, time, vector, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    actions = torch.rand(batch, time, 2, generator=generator, dtype=torch.float64)
    values = torch.randn(batch, time, vector, generator=generator, dtype=torch.float64)
    return actions.to(dtype).requires_grad_(), values.to(dtype).requires_grad_()


def outcome(implementation, actions, values, cotangent, lengths=None):
    readings = stratified_stack(actions, values, lengths=lengths, implementation=implementation)
    return readings, *torch.autograd.grad(readings, (actions, values), cotangent, materialize_grads=True)


def read_by_hand(steps):
    """Readings of scalars; each step is (pop, push, value), and items are (value, strength) with the top last."""
    items, readings = [], []
    for pop, push, value in steps:
        left = pop
        for i in reversed(range(len(items))):
            kept, strength = items[i]
            items[i] = (kept, max(0.0, strength - max(0.0, left)))
            left -= strength
        items.append((value, push))
        room, total = 1.0, 0.0
        for kept, strength in reversed(items):
            total += min(strength, max(0.0, room)) * kept
            room -= strength
        readings.append(total)
    return readings


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(0, 1, 5.0), (0, 1, 7.0), (1, 0, 9.0), (1, 0, 9.0), (1, 0, 9.0)], [5, 7, 5, 0, 0]),
        # Grefenstette et al. (2015), figure 1: push 0.8 v1; pop 0.1, push 0.5 v2; pop 0.9, push 0.9 v3.
        ([(0, 0.8, 1.0), (0.1, 0.5, 10.0), (0.9, 0.9, 100.0)], [0.8, 5.5, 90.1]),
        ([(0, 0.3, 1.0), (0, 0.3, 10.0)], [0.3, 3.3]),
        ([(0.5, 1, 4.0)], [4]),
    ],
)
def test_hand_worked_cases(implementation, steps, expected):
    actions = torch.tensor([[[push, pop] for pop, push, _ in steps]], dtype=torch.float64)
    values = torch.tensor([[[value] for *_, value in steps]], dtype=torch.float64)
    readings = stratified_stack(actions, values, implementation=implementation).flatten()
    assert readings.tolist() == pytest.approx(read_by_hand(steps), abs=1e-12)
    assert readings.tolist() == pytest.approx(expected, abs=1e-12)
    assert (StratifiedAction.PUSH, StratifiedAction.POP) == (0, 1)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_recursion_written_out(implementation):
    actions, values = inputs(3, 20, 1)
    readings = stratified_stack(actions, values, implementation=implementation)
    for b in range(3):
        steps = [
            (pop, push, value) for (push, pop), value in zip(actions[b].tolist(), values[b, :, 0].tolist(), strict=True)
        ]
        assert readings[b, :, 0].tolist() == pytest.approx(read_by_hand(steps), abs=1e-12)


def assert_equals_definition(implementation, device, dtype, time, vector):
    actions, values = inputs(3, time, vector, dtype)
    cotangent = torch.randn(3, time, vector, dtype=dtype, generator=torch.Generator().manual_seed(9))
    lengths = torch.tensor([time, time // 2, 0])
    moved = [leaf.detach().to(device).requires_grad_() for leaf in (actions, values)]
    fast = outcome(implementation, *moved, cotangent.to(device), lengths.to(device))
    exact = [leaf.detach().double().requires_grad_() for leaf in (actions, values)]
    slow = outcome("reference", *exact, cotangent.double(), lengths)
    for result, expected in zip(fast, slow, strict=True):
        assert result.dtype == dtype
        scale = max(expected.norm().item(), cotangent.norm().item())
        assert (result.double().cpu() - expected).norm() <= TOLERANCE[dtype] * scale


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("time", [0, 1, 2, 7, 63])
@pytest.mark.parametrize("vector", [1, 5, 33])
@pytest.mark.parametrize("implementation", ["cpu", "gpu"])
def test_fast_forms_equal_the_definition(implementation, dtype, time, vector):
    assert_equals_definition(implementation, "cpu", dtype, time, vector)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_a_device(cuda, dtype):
    assert_equals_definition("auto", cuda, dtype, 150, 33)


@pytest.mark.parametrize("implementation", ["cpu", "gpu"])
@pytest.mark.parametrize(("levels", "least", "most"), [(1, 0, 1), (4, 0, 1), (2, -2, 4)])
def test_where_strengths_tie_all_agree(implementation, levels, least, most):
    """Strengths are multiples of 1 / levels, some of them negative, so that many pops end where an item begins."""
    actions, values = inputs(30, 14, 2)
    hard = ((least + (most - least) * actions.detach()) * levels).round().div(levels).requires_grad_()
    found = outcome(implementation, hard, values, torch.ones_like(values))
    expected = outcome("reference", hard, values, torch.ones_like(values))
    for result, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(result, wanted, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_gradcheck(implementation):
    actions, values = inputs(2, 6, 2)
    lengths = torch.tensor([6, 3])
    assert gradcheck(
        lambda a, v: stratified_stack(a, v, lengths=lengths, implementation=implementation), (actions, values)
    )


def test_second_gradient_is_refused_or_right():
    actions, values = inputs(1, 3, 2)
    assert gradgradcheck(lambda a, v: stratified_stack(a, v, implementation="reference"), (actions, values))
    for implementation in ("cpu", "gpu"):
        readings = stratified_stack(actions, values, implementation=implementation)
        (first,) = torch.autograd.grad(readings.sum(), actions, create_graph=True)
        with pytest.raises(NotImplementedError, match="double backward is not supported"):
            first.sum().backward()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_past_the_length_nothing_enters_and_nothing_leaves(implementation):
    clean, lengths = inputs(3, 6, 4), torch.tensor([6, 2, 0])
    past = (torch.arange(6) >= lengths[:, None])[..., None]
    cotangent = torch.randn(3, 6, 4, dtype=torch.float64)
    poisoned = [leaf.detach().masked_fill(past, float("nan")).requires_grad_() for leaf in clean]
    found = outcome(implementation, *poisoned, cotangent.masked_fill(past, float("nan")), lengths)
    expected = outcome(implementation, *clean, cotangent, lengths)
    for result, wanted in zip(found, expected, strict=True):
        assert torch.equal(result, wanted)
        assert (result.masked_select(past) == 0).all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_an_infinite_pop_empties_the_stack(implementation):
    actions, values = (x.detach() for x in inputs(2, 8, 3))
    actions[:, 3, 1] = torch.inf
    readings = stratified_stack(actions, values, implementation=implementation)
    afterwards = stratified_stack(actions[:, 3:], values[:, 3:], implementation=implementation)
    torch.testing.assert_close(readings[:, 3:], afterwards)


def test_weights_reproduce_the_readings():
    actions, values = inputs(2, 8, 3)
    lengths = torch.tensor([8, 5])
    weights = stratified_stack_weights(actions, lengths=lengths)
    assert (weights.triu(1) == 0).all()
    assert (weights >= 0).all()
    assert (weights.sum(-1) <= 1 + 1e-12).all()
    torch.testing.assert_close(weights @ values, stratified_stack(actions, values, lengths=lengths))


def test_a_step_is_a_step():
    strengths = stratified_step(torch.tensor([[0.5, 0.4]]), torch.tensor([[0.7, 0.6]]))
    torch.testing.assert_close(strengths, torch.tensor([[0.3, 0.0, 0.7]]))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3), (2, 4, 0)])
def test_empty_sizes(implementation, shape):
    actions, values = inputs(*shape)
    assert stratified_stack(actions, values, implementation=implementation).shape == shape


def test_threads_do_not_change_a_sum(assert_same_by_threads):
    actions, values = inputs(7, 90, 40, torch.float32)
    assert_same_by_threads(lambda: outcome("cpu", actions, values, torch.ones_like(values)))


def test_operator_is_well_registered():
    actions, values = inputs(2, 4, 3)
    for lengths in (None, torch.tensor([4, 2])):
        torch.library.opcheck(torch.ops.structattn.stratified_stack.default, (actions, values, lengths))
    torch.library.opcheck(torch.ops.structattn.stratified_stack_gpu.default, (actions, values, torch.tensor([4, 2])))


@pytest.mark.quick("cpu")
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_survives_compilation(implementation):
    actions, values = inputs(2, 4, 3)

    def program(actions, values):
        return stratified_stack(actions, values, implementation=implementation).sin().sum()

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(program(actions, values), (actions, values))
    for result, wanted in zip(torch.autograd.grad(compiled(actions, values), (actions, values)), expected, strict=True):
        torch.testing.assert_close(result, wanted)


def test_low_precision_is_computed_in_float32():
    actions, values = (tensor.detach() for tensor in inputs(2, 30, 4, torch.float32))
    exact = stratified_stack(actions.bfloat16().float(), values.bfloat16().float())
    assert torch.equal(stratified_stack(actions.bfloat16(), values.bfloat16()), exact.bfloat16())


def test_refusals():
    with pytest.raises(ValueError, match=r"actions has shape \(1, 2, 3\)"):
        stratified_stack(torch.zeros(1, 2, 3), torch.zeros(1, 2, 4))
    with pytest.raises(ValueError, match="values has shape"):
        stratified_stack(torch.zeros(1, 2, 2), torch.zeros(1, 3, 4))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("action", [0, 1])
def test_nan_actions_reach_their_step(implementation, action):
    actions, values = (x.detach() for x in inputs(2, 3, 2))
    actions[0, 1, action] = torch.nan
    readings = stratified_stack(actions, values, implementation=implementation)
    assert readings[0, 1].isnan().all()
    assert not readings[0, 0].isnan().any()
    assert not readings[1].isnan().any()

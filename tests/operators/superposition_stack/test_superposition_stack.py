"""The superposition stack: kernel against definition, definition against enumeration, and the contract's corners."""

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

from structattn.operators.superposition_stack import (
    superposition_stack,
    superposition_stack_weights,
    superposition_step,
)

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
IMPLEMENTATIONS = ["reference", "cpu"]


def inputs(batch, time, vector, dtype=torch.float64, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(batch, time, 3, generator=generator, dtype=dtype)
    values = torch.randn(batch, time, vector, generator=generator, dtype=dtype)
    return torch.softmax(logits, -1).requires_grad_(), values.requires_grad_()


def outcome(implementation, actions, values, cotangent, lengths=None):
    readings = superposition_stack(actions, values, lengths=lengths, implementation=implementation)
    return readings, *torch.autograd.grad(readings, (actions, values), cotangent)


def assert_close(result, expected, tolerance, floor=0.0):
    error = (result.double() - expected.double()).norm()
    assert error <= tolerance * max(expected.double().norm().item(), floor)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("time", [1, 2, 7, 63])
@pytest.mark.parametrize("vector", [1, 2, 7, 32, 63])
@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
def test_kernel_equals_definition(dtype, time, vector, scale):
    actions, values = inputs(3, time, vector, dtype, scale=scale)
    cotangent = torch.randn(3, time, vector, dtype=dtype, generator=torch.Generator().manual_seed(9))
    lengths = torch.tensor([time, time // 2, 0])
    fast = outcome("cpu", actions, values, cotangent, lengths)
    slow = outcome("reference", actions.double(), values.double(), cotangent.double(), lengths)
    for result, expected in zip(fast, slow, strict=True):
        assert result.dtype == dtype
        assert_close(result, expected, TOLERANCE[dtype], floor=cotangent.norm().item())


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("time", [1, 2, 3, 7, 8, 63])
@pytest.mark.parametrize("vector", [1, 7, 63])
def test_kernel_equals_definition_from_a_full_stack(dtype, time, vector):
    actions, values = inputs(3, time, vector, dtype, scale=3.0)
    initial = torch.randn(3, vector, dtype=dtype, generator=torch.Generator().manual_seed(8)).requires_grad_()
    cotangent = torch.randn(3, time, vector, dtype=dtype, generator=torch.Generator().manual_seed(9))
    lengths = torch.tensor([time, time // 2, 0])
    fast = full_outcome("cpu", (actions, values, initial), cotangent, lengths)
    exact = [leaf.detach().double().requires_grad_() for leaf in (actions, values, initial)]
    slow = full_outcome("reference", exact, cotangent.double(), lengths)
    for result, expected in zip(fast, slow, strict=True):
        assert result.dtype == dtype
        assert_close(result, expected, TOLERANCE[dtype], floor=cotangent.norm().item())


def full_outcome(implementation, leaves, cotangent, lengths=None):
    """The readings of a stack that begins full, and the gradients of actions, values and the initial row."""
    actions, values, initial = leaves
    readings = superposition_stack(actions, values, initial=initial, lengths=lengths, implementation=implementation)
    return readings, *torch.autograd.grad(readings, leaves, cotangent)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_stack_full_of_zeros_is_empty(implementation):
    actions, values = inputs(2, 7, 3)
    zeros = torch.zeros(2, 3, dtype=torch.float64)
    full = superposition_stack(actions, values, initial=zeros, implementation=implementation)
    assert torch.equal(full, superposition_stack(actions, values, implementation=implementation))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_full_stack_never_runs_out(implementation):
    actions, values = inputs(2, 9, 3)
    ones = torch.ones_like(values)
    full = superposition_stack(actions, ones, initial=ones[:, 0], implementation=implementation)
    torch.testing.assert_close(full, ones, rtol=1e-14, atol=0)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_gradcheck_from_a_full_stack(implementation):
    actions, values = inputs(2, 5, 2)
    initial = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([5, 2])

    def readings(actions, values, initial):
        return superposition_stack(actions, values, initial=initial, lengths=lengths, implementation=implementation)

    assert gradcheck(readings, (actions, values, initial))
    bare = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(readings, (bare, values, initial))


def test_an_initial_row_that_no_step_reads_is_not_touched():
    actions, values = inputs(2, 3, 2)
    initial = torch.tensor([[float("nan")] * 2, [1.0] * 2], dtype=torch.float64, requires_grad=True)
    for implementation in IMPLEMENTATIONS:
        leaves = (actions, values, initial)
        results = full_outcome(implementation, leaves, torch.ones_like(values), torch.tensor([0, 3]))
        assert all(result.isfinite().all() for result in results)
        assert (results[3][0] == 0).all()


def test_long_sequences_are_cut_into_blocks():
    # 16 MiB of stacks are reached at T = 401, m = 32; the last block is then shorter than the others.
    actions, values = inputs(1, 401, 32, torch.float32)
    cotangent = torch.randn_like(values)
    fast = outcome("cpu", actions, values, cotangent)
    slow = outcome("reference", actions, values, cotangent)
    for result, expected in zip(fast, slow, strict=True):
        assert_close(result, expected, 1e-5)
    leaves = (actions, values, torch.randn(1, 32, requires_grad=True))
    fast, slow = (full_outcome(implementation, leaves, cotangent) for implementation in ("cpu", "reference"))
    for result, expected in zip(fast, slow, strict=True):
        assert_close(result, expected, 1e-5)


def top_after(chosen):
    """The step whose vector is on top after the actions chosen, or None; a pop of an empty stack does nothing."""
    stack = []
    for step, action in enumerate(chosen):
        if action == 0:
            stack.append(step)
        elif action == 2 and stack:
            stack.pop()
    return stack[-1] if stack else None


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("time", [1, 2, 3, 5, 6])
def test_the_last_reading_is_the_expected_top_over_all_action_sequences(implementation, time):
    actions, values = inputs(1, time, 2)
    weights = torch.zeros(time, dtype=torch.float64)
    for chosen in itertools.product(range(3), repeat=time):
        top = top_after(chosen)
        if top is not None:
            weights[top] += actions[0, range(time), chosen].prod().item()
    readings = superposition_stack(actions, values, implementation=implementation)
    assert_close(readings[0, -1], weights @ values[0], 1e-14)


def test_a_run_by_hand():
    push, noop, pop = torch.eye(3, dtype=torch.float64)
    actions = torch.stack([pop, push, push, noop, pop, pop, pop])[None]
    values = torch.arange(7, dtype=torch.float64)[None, :, None]
    assert superposition_stack(actions, values).flatten().tolist() == [0, 1, 2, 2, 1, 0, 0]


@pytest.mark.covering(1)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("time", [1, 2, 7])
@pytest.mark.parametrize("vector", [1, 2, 7])
def test_gradcheck(implementation, time, vector):
    actions, values = inputs(2, time, vector)
    lengths = torch.tensor([time, time - 1])
    assert gradcheck(
        lambda a, v: superposition_stack(a, v, lengths=lengths, implementation=implementation), (actions, values)
    )


def test_gradcheck_at_63():
    actions, values = inputs(1, 63, 2)
    assert gradcheck(superposition_stack, (actions, values), fast_mode=True)
    actions, values = inputs(1, 2, 63)
    assert gradcheck(superposition_stack, (actions, values), fast_mode=True)


def test_second_gradient_is_refused_or_right():
    actions, values = inputs(1, 3, 2)
    assert gradgradcheck(lambda a, v: superposition_stack(a, v, implementation="reference"), (actions, values))
    first = torch.autograd.grad(
        superposition_stack(actions, values, implementation="cpu").sum(), actions, create_graph=True
    )[0]
    with pytest.raises(NotImplementedError, match="double backward is not supported"):
        first.sum().backward()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_past_the_length_nothing_enters_and_nothing_leaves(implementation):
    clean_actions, clean_values = inputs(3, 6, 4)
    lengths = torch.tensor([6, 2, 0])
    past = torch.arange(6) >= lengths[:, None]
    cotangent = torch.randn(3, 6, 4, dtype=torch.float64).masked_fill(past[..., None], float("nan"))
    actions = clean_actions.detach().masked_fill(past[..., None], float("nan")).requires_grad_()
    values = clean_values.detach().masked_fill(past[..., None], float("inf")).requires_grad_()
    results = outcome(implementation, actions, values, cotangent, lengths)
    for result in results:
        assert (result[past] == 0).all()
        assert result.isfinite().all()
    alone = outcome(implementation, clean_actions[1:2, :2], clean_values[1:2, :2], cotangent[1:2, :2])
    for result, expected in zip(results, alone, strict=True):
        torch.testing.assert_close(result[1:2, :2], expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3), (2, 4, 0), (0, 0, 0)])
def test_empty_sizes(implementation, shape):
    actions, values = inputs(*shape)
    readings = superposition_stack(actions, values, implementation=implementation)
    assert readings.shape == shape
    (readings.sum() + 0 * actions.sum() + 0 * values.sum()).backward()
    assert actions.grad.shape == (*shape[:2], 3)
    assert values.grad.shape == shape


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_nan_reaches_only_its_own_sequence_and_later_steps(implementation):
    actions, values = inputs(2, 5, 3)
    with torch.no_grad():
        values[0, 3, 1] = float("nan")
    readings = superposition_stack(actions, values, implementation=implementation)
    expected = torch.zeros(2, 5, 3, dtype=torch.bool)
    expected[0, 3:, 1] = True
    assert torch.equal(readings.isnan(), expected)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_extreme_finite_inputs_stay_finite(implementation):
    for scale in (0.0, 1e-40, 88.0, 1e4, -1e4):
        actions, values = inputs(2, 9, 3, torch.float32, scale=100.0)
        values = (values.detach() * scale).requires_grad_()
        for result in outcome(implementation, actions, values, torch.ones_like(values)):
            assert result.isfinite().all()


def test_denormal_values_keep_their_digits():
    actions, values = inputs(2, 9, 3, torch.float32)
    tiny = values.detach() * 1e-40
    readings = superposition_stack(actions, tiny, implementation="cpu")
    assert_close(readings, superposition_stack(actions.double(), tiny.double()), 1e-4)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_strided_arguments(implementation):
    actions, values = inputs(2, 5, 6)
    expected = superposition_stack(actions, values, implementation=implementation)
    wide = torch.randn(2, 5, 20, dtype=torch.float64)
    with torch.no_grad():
        wide[..., 3:6], wide[..., 8:20:2] = actions, values
    strided = superposition_stack(wide[..., 3:6], wide[..., 8:20:2], implementation=implementation)
    swapped = superposition_stack(
        actions.transpose(0, 1).contiguous().transpose(0, 1), values, implementation=implementation
    )
    assert torch.equal(strided, expected)
    assert torch.equal(swapped, expected)


def test_threads_do_not_change_a_sum(assert_same_by_threads):
    actions, values = inputs(7, 90, 40, torch.float32)
    assert_same_by_threads(lambda: outcome("cpu", actions, values, torch.ones_like(values)))


def test_weights_reproduce_the_readings():
    actions, values = inputs(2, 8, 3)
    lengths = torch.tensor([8, 5])
    weights = superposition_stack_weights(actions, lengths=lengths)
    assert weights.shape == (2, 8, 8)
    assert (weights.triu(1) == 0).all()
    assert_close(weights @ values, superposition_stack(actions, values, lengths=lengths), 1e-14)


def test_step_by_step_equals_the_whole():
    actions, values = inputs(2, 8, 3)
    stack, whole = values[:, :0], superposition_stack(actions, values)
    for step in range(8):
        stack = superposition_step(stack, actions[:, step], values[:, step])
        torch.testing.assert_close(stack[:, 0], whole[:, step], rtol=1e-13, atol=1e-15)


def test_operator_is_well_registered():
    actions, values = inputs(2, 4, 3)
    initial = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    for lengths, row in itertools.product((None, torch.tensor([4, 2])), (None, initial)):
        torch.library.opcheck(torch.ops.structattn.superposition_stack.default, (actions, values, lengths, row))
        detached = None if row is None else row.detach()
        plain = (torch.ones(2, 4, 3, dtype=torch.float64), actions.detach(), values.detach(), lengths, detached)
        torch.library.opcheck(torch.ops.structattn.superposition_stack_backward.default, plain)


@pytest.mark.quick("cpu")
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_survives_compilation(implementation):
    actions, values = inputs(2, 4, 3)
    lengths = torch.tensor([4, 2])

    def program(actions, values, lengths):
        return superposition_stack(actions, values, lengths=lengths, implementation=implementation).sin()

    compiled = torch.compile(program, fullgraph=True, backend="aot_eager")
    expected = torch.autograd.grad(program(actions, values, lengths).sum(), (actions, values))
    found = torch.autograd.grad(compiled(actions, values, lengths).sum(), (actions, values))
    for result, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(result, wanted)


@pytest.mark.parametrize("begins_full", [False, True])
def test_activation_checkpointing(begins_full):
    actions, values = torch.rand(2, 5, 3, requires_grad=True), torch.rand(2, 5, 4, requires_grad=True)
    initial = {"initial": torch.rand(2, 4, requires_grad=True)} if begins_full else {}
    arguments = [actions, values, *initial.values()]
    expected = torch.autograd.grad(superposition_stack(actions, values, **initial).sum(), arguments)
    readings = checkpoint(superposition_stack, actions, values, **initial, use_reentrant=False)
    for result, reference in zip(torch.autograd.grad(readings.sum(), arguments), expected, strict=True):
        assert torch.equal(result, reference)


def test_low_precision_is_computed_in_float32():
    actions, values = (tensor.detach() for tensor in inputs(2, 30, 4, torch.float32))
    exact = superposition_stack(actions.bfloat16().float(), values.bfloat16().float())
    result = superposition_stack(actions.bfloat16(), values.bfloat16())
    assert result.dtype == torch.bfloat16
    assert torch.equal(result, exact.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = superposition_stack(actions.bfloat16().float(), values.bfloat16())
    assert mixed.dtype == torch.float32
    assert torch.equal(mixed, exact)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": torch.zeros(2, 4, 2)}, r"actions has shape \(2, 4, 2\); expected \(B, T, 3\)"),
        ({"values": torch.zeros(2, 5, 3)}, r"values has shape \(2, 5, 3\); expected \(B, T, m\) = \(2, 4, 'any'\)"),
        ({"values": torch.zeros(2, 4, 3).double()}, "float64"),
        ({"values": torch.zeros(2, 4, 3).long()}, "int64"),
        ({"initial": torch.zeros(2, 4)}, r"initial has shape \(2, 4\); expected \(B, m\) = \(2, 3\)"),
        ({"initial": torch.zeros(2, 3).double()}, "initial is torch.float64"),
        ({"lengths": torch.tensor([4.0, 1.0])}, "lengths: integers"),
    ],
)
def test_refusals(change, message):
    arguments = {"actions": torch.zeros(2, 4, 3), "values": torch.zeros(2, 4, 3)} | change
    with pytest.raises(ValueError, match=message):
        superposition_stack(**arguments)

"""One step at a time: against whole sequences, and states as values in trees of steps."""

import copy
import threading

import pytest
import torch

from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack,
    nondeterministic_stack_initial_state,
    nondeterministic_stack_step,
)

IMPLEMENTATIONS = ["reference", "cpu"]


def first(inputs, **options):
    batch, _, states, symbols = inputs.push.shape[:4]
    return nondeterministic_stack_initial_state(inputs.bottom, batch, states, symbols, **options)


def stepped(inputs, state, times):
    """Readings (B, T, ..) of the steps at these times, and the state after them."""
    readings = []
    for t in times:
        reading, state = nondeterministic_stack_step(*(x[:, t] for x in inputs.all[:4]), state)
        readings.append(reading)
    return torch.stack(readings, 1), state


def by_steps(inputs, **options):
    return stepped(inputs, first(inputs, **options), range(inputs.push.shape[1]))[0]


def leaves_of(inputs):
    return type(inputs)(*(x.detach().clone().requires_grad_() for x in inputs.all))


def with_gradients(function, inputs, **options):
    leaves = leaves_of(inputs)
    readings = function(leaves, **options)
    cotangent = torch.randn(readings.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    gradients = torch.autograd.grad(readings, leaves.all, cotangent.to(readings.dtype), materialize_grads=True)
    return readings.detach(), gradients


def whole(inputs, **options):
    return nondeterministic_stack(*inputs.all, **options)


def assert_same(found, wanted, tolerance):
    (readings, gradients), (readings_wanted, gradients_wanted) = found, wanted
    size = float(readings_wanted.numel()) ** 0.5
    assert float((readings - readings_wanted).norm()) <= tolerance * max(float(readings_wanted.norm()), 1e-300)
    for x, r in zip(gradients, gradients_wanted, strict=True):
        assert float((x - r).norm()) <= tolerance * max(float(r.norm()), size)


@pytest.mark.covering(2)
@pytest.mark.parametrize(("states", "symbols"), [(1, 1), (2, 3), (3, 2), (4, 2)])
@pytest.mark.parametrize("time", [1, 2, 7, 9])
@pytest.mark.parametrize("window", [None, 1, 4])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_steps_equal_the_whole(random_inputs, states, symbols, time, window, implementation):
    inputs = random_inputs(2, time, states, symbols, scale=2.0)
    wanted = with_gradients(whole, inputs, window=window, implementation="reference")
    found = with_gradients(by_steps, inputs, window=window, implementation=implementation)
    assert_same(found, wanted, 1e-12)


@pytest.mark.covering(2)
@pytest.mark.parametrize("time", [63, 64, 65, 130])
@pytest.mark.parametrize("window", [None, 9, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_records_may_grow(random_inputs, time, window, dtype):
    inputs = random_inputs(3, time, 2, 3, scale=2.0).to(dtype)
    wanted = with_gradients(whole, inputs, window=window)
    assert_same(with_gradients(by_steps, inputs, window=window), wanted, 1e-12 if dtype == torch.float64 else 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_before_the_first_step_the_bottom_is_read(random_inputs, dtype, implementation):
    inputs = leaves_of(random_inputs(2, 1, 2, 3).to(dtype))
    reading = first(inputs, implementation=implementation).reading
    expected = torch.zeros(2, 2, 3, 3, dtype=dtype)
    expected[:, 0, 0] = inputs.bottom.detach()
    torch.testing.assert_close(reading.detach(), expected)
    (gradient,) = torch.autograd.grad(reading.sum(), inputs.bottom)
    torch.testing.assert_close(gradient, torch.full((3,), 2.0, dtype=dtype))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((-1, 2, 3), "-1 sequences, 2 states, 3 symbols; expected at least 0, 1 and 1"),
        ((2, 0, 3), "2 sequences, 0 states, 3 symbols; expected at least 0, 1 and 1"),
        ((2, 2, 0), "2 sequences, 2 states, 0 symbols; expected at least 0, 1 and 1"),
    ],
)
def test_sizes_without_a_state_or_symbol_are_refused(sizes, message):
    with pytest.raises(ValueError, match=message):
        nondeterministic_stack_initial_state(torch.zeros(3), *sizes)


def test_an_empty_batch_and_single_states_and_symbols_are_allowed():
    assert nondeterministic_stack_initial_state(torch.zeros(3), 0, 1, 1).reading.shape == (0, 1, 1, 3)


def tree(inputs, seed, **options):
    """Readings of a random tree of steps: any state may be stepped again, selected or detached at any time."""
    generator = torch.Generator().manual_seed(seed)

    def draw(end):
        return int(torch.randint(end, (), generator=generator))

    states, readings = [first(inputs, **options)], []
    for _ in range(40):
        state, what = states[draw(len(states)) if draw(3) == 0 else -1], draw(10)
        if what == 0:
            batch = len(state.reading)
            states.append(state.select(torch.randint(batch, (batch,), generator=generator)))
        elif what == 1 and len(states) < 10:
            states.append(state.detach())
        else:
            t = draw(inputs.push.shape[1])
            reading, state = nondeterministic_stack_step(*(x[:, t] for x in inputs.all[:4]), state)
            states.append(state)
            readings.append(reading)
    return torch.stack(readings, 1)


@pytest.mark.covering(1)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("window", [None, 3])
def test_trees_of_steps_equal_the_definition(random_inputs, seed, window):
    inputs = random_inputs(2, 6, 2, 2, seed=seed)
    wanted = with_gradients(tree, inputs, seed=seed, window=window, implementation="reference")
    assert_same(with_gradients(tree, inputs, seed=seed, window=window, implementation="cpu"), wanted, 1e-12)


@pytest.mark.covering(1)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spread", [40.0, 300.0, 1e4])
def test_trees_in_which_some_sequences_leave_the_range_of_doubles(random_inputs, seed, spread):
    inputs = random_inputs(3, 6, 2, 2, seed=seed)
    scale = torch.ones(3, 6, dtype=torch.float64)
    scale[1, 3:], scale[2, :2] = spread, spread
    logits = [x * scale.view(3, 6, *[1] * (x.dim() - 2)) for x in inputs.logits]
    inputs = type(inputs)(*logits, inputs.values, inputs.bottom)
    wanted = with_gradients(tree, inputs, seed=seed, implementation="reference")
    assert_same(with_gradients(tree, inputs, seed=seed, implementation="cpu"), wanted, 1e-10)


def test_what_has_underflowed_and_comes_back_is_found_again(random_inputs):
    inputs = random_inputs(1, 4, 1, 1, scale=0.0)
    inputs.push[0, 0], inputs.push[0, 1:], inputs.pop[0, 2] = -800.0, -torch.inf, 1600.0
    wanted = with_gradients(whole, inputs, implementation="reference")
    assert_same(with_gradients(by_steps, inputs, implementation="cpu"), wanted, 1e-12)


@pytest.mark.parametrize("window", [None, 5])
def test_a_state_may_be_stepped_before_and_after_its_successors(random_inputs, window):
    inputs = random_inputs(2, 12, 2, 3)
    state = stepped(inputs, first(inputs, window=window), range(4))[1]
    expected, later = stepped(inputs, state, range(4, 12))
    again, _ = stepped(inputs, state, range(4, 12))
    assert torch.equal(again, expected)
    assert torch.equal(stepped(inputs, later, [0])[0], stepped(inputs, later, [0])[0])
    assert torch.equal(torch.cat([by_steps(inputs, window=window)[:, :4], again], 1), by_steps(inputs, window=window))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_branch_that_is_not_finite_leaves_others_as_they_are(random_inputs, implementation, bad):
    leaves = leaves_of(random_inputs(2, 6, 2, 2))
    state = stepped(leaves, first(leaves, implementation=implementation), range(5))[1]
    poisoned = type(leaves)(*leaves.all[:3], torch.full_like(leaves.values, bad), leaves.bottom)
    expected = torch.autograd.grad(stepped(leaves, state, [5])[0].sum(), leaves.all, retain_graph=True)
    later = stepped(poisoned, state, [5])[1]
    stepped(poisoned, later, [5])
    found = torch.autograd.grad(stepped(leaves, state, [5])[0].sum(), leaves.all)
    for x, r in zip(found, expected, strict=True):
        torch.testing.assert_close(x, r, rtol=1e-13, atol=1e-14)


def test_backward_as_often_as_one_likes(random_inputs):
    leaves = leaves_of(random_inputs(2, 9, 2, 3))
    readings = by_steps(leaves)
    separate = [torch.autograd.grad(readings[:, t].sum(), leaves.all, retain_graph=True) for t in range(9)]
    together = torch.autograd.grad(readings.sum(), leaves.all, retain_graph=True)
    assert all(
        torch.equal(x, r)
        for x, r in zip(together, torch.autograd.grad(readings.sum(), leaves.all, retain_graph=True), strict=True)
    )
    for total, *parts in zip(together, *separate, strict=True):
        torch.testing.assert_close(sum(parts), total, rtol=0, atol=1e-12)
    (alone,) = torch.autograd.grad(readings[:, 5].sum(), leaves.push)
    torch.testing.assert_close(alone, separate[5][0], rtol=0, atol=0)


def test_gradients_end_where_steps_were_taken_without_them(random_inputs):
    inputs, leaves = random_inputs(2, 9, 2, 3), leaves_of(random_inputs(2, 9, 2, 3))
    with torch.no_grad():
        state = stepped(leaves, first(leaves), range(4))[1]
    late, _ = stepped(leaves, state, range(4, 9))
    mixed = leaves_of(inputs)
    joined = [torch.cat([a[:, :4], b[:, 4:]], 1) for a, b in zip(inputs.all[:4], mixed.all[:4], strict=True)]
    wanted = nondeterministic_stack(*joined, inputs.bottom)[:, 4:]
    found = torch.autograd.grad(late.square().sum(), leaves.all[:4])
    for x, r in zip(found, torch.autograd.grad(wanted.square().sum(), mixed.all[:4]), strict=True):
        torch.testing.assert_close(x, r, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("implementation", "symbols"), [("cpu", 2), ("reference", 1)])  # the definition takes long
def test_gradients_are_those_of_finite_differences(random_inputs, implementation, symbols):
    inputs = random_inputs(2, 4, 2, symbols, vector=2)
    leaves = [x.requires_grad_() for x in inputs.all]

    def readings(*arguments):
        state = first(type(inputs)(*arguments), implementation=implementation)
        before, state = stepped(type(inputs)(*arguments), state, [0, 1])
        one, _ = stepped(type(inputs)(*arguments), state.select(torch.tensor([1, 1, 0])).select(torch.arange(2)), [2])
        other, _ = stepped(type(inputs)(*arguments), state, [3, 2])
        return before, one, other

    assert torch.autograd.gradcheck(readings, leaves)


def test_definition_has_a_second_derivative_and_the_kernel_refuses_one(random_inputs):
    inputs = random_inputs(1, 3, 1, 2, vector=1)
    leaves = [x.requires_grad_() for x in inputs.all]
    assert torch.autograd.gradgradcheck(lambda *a: by_steps(type(inputs)(*a), implementation="reference"), leaves)
    readings = by_steps(inputs, implementation="cpu")
    slopes = torch.autograd.grad(readings.sum(), leaves, create_graph=True)
    for slope in slopes:
        with pytest.raises(NotImplementedError, match="double backward is not supported"):
            slope.sum().backward(retain_graph=True)


@torch.no_grad()
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_deep_copy_is_another_state(random_inputs, implementation):
    inputs = random_inputs(2, 6, 2, 3)
    state = stepped(inputs, first(inputs, implementation=implementation), range(3))[1]
    other = copy.deepcopy(state)
    expected, _ = stepped(inputs, state, range(3, 6))
    found, _ = stepped(inputs, other, range(3, 6))
    assert torch.equal(found, expected)


def test_many_threads_may_step_one_state(random_inputs):
    inputs = random_inputs(2, 30, 2, 3)
    state = stepped(inputs, first(inputs), range(20))[1]
    expected, results = stepped(inputs, state, range(20, 30))[0], []
    state = stepped(inputs, first(inputs), range(20))[1]
    threads = [
        threading.Thread(target=lambda: results.append(stepped(inputs, state, range(20, 30))[0])) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(torch.equal(result, expected) for result in results)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_stays_in_its_sequence_and_after_its_step(random_inputs, implementation, bad):
    inputs = random_inputs(2, 6, 2, 2)
    clean = by_steps(inputs, implementation=implementation)
    inputs.replace[0, 3, 0, 0, 0, 0] = bad
    readings, gradients = with_gradients(by_steps, inputs, implementation=implementation)
    assert readings[0, 3:].isnan().all()
    assert torch.equal(readings[0, :3], clean[0, :3])
    assert torch.equal(readings[1], clean[1])
    assert all(g[1].isfinite().all() for g in gradients[:4])
    if implementation == "cpu":
        assert all(g[0].isnan().all() for g in gradients[:4])


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_nothing_allowed_gives_zeros_from_there_on(random_inputs, implementation):
    inputs = random_inputs(2, 8, 2, 2)
    for x in inputs.logits:
        x[0, 4] = -torch.inf
    found = with_gradients(by_steps, inputs, implementation=implementation)
    assert not found[0][0, 4:].any()
    assert_same(found, with_gradients(whole, inputs, implementation="reference"), 1e-12)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(("batch", "vector"), [(0, 3), (2, 0), (0, 0)])
def test_empty_batches_and_vectors(random_inputs, implementation, batch, vector):
    inputs = random_inputs(batch, 3, 2, 3, vector=vector)
    readings, gradients = with_gradients(by_steps, inputs, implementation=implementation)
    assert readings.shape == (batch, 3, 2, 3, vector)
    assert [g.shape for g in gradients] == [x.shape for x in inputs.all]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_half_precision_is_computed_in_single(random_inputs, dtype, implementation):
    inputs = random_inputs(2, 8, 2, 3).to(dtype)
    readings = by_steps(inputs, implementation=implementation)
    assert readings.dtype == dtype
    exact = nondeterministic_stack(*inputs.to(torch.float64).all)
    torch.testing.assert_close(readings.double(), exact, rtol=torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


def test_autocast_takes_mixed_precisions(random_inputs):
    inputs = random_inputs(2, 8, 2, 3).to(torch.float32)
    low = type(inputs)(*inputs.logits, inputs.values.bfloat16(), inputs.bottom)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        readings = by_steps(low)
    assert readings.dtype == torch.float32
    torch.testing.assert_close(readings, nondeterministic_stack(*inputs.logits, low.values.float(), inputs.bottom))


def test_bad_arguments_are_named(random_inputs):
    inputs = random_inputs(2, 1, 2, 3)
    step = [x[:, 0] for x in inputs.all[:4]]
    for position, name in enumerate(("push_t", "replace_t", "pop_t", "value_t")):
        wrong = [x[..., :-1] if i == position else x for i, x in enumerate(step)]
        with pytest.raises(ValueError, match=f"{name} has shape"):
            nondeterministic_stack_step(*wrong, first(inputs))
    with pytest.raises(ValueError, match=r"expected torch\.float64 on cpu as state"):
        nondeterministic_stack_step(*(x.float() for x in step), first(inputs))
    with pytest.raises(ValueError, match="window=0"):
        first(inputs, window=0)
    with pytest.raises(ValueError, match="-1 sequences, 2 states, 3 symbols"):
        nondeterministic_stack_initial_state(inputs.bottom, -1, 2, 3)


class Stepper(torch.nn.Module):
    def forward(self, push, replace, pop, value, state):
        return nondeterministic_stack_step(push, replace, pop, value, state)


@pytest.mark.quick("3")
@pytest.mark.parametrize("window", [None, 3])
def test_a_step_of_the_definition_can_be_exported_for_any_time(random_inputs, window):
    inputs = random_inputs(2, 9, 2, 2)
    options = {"window": window, "implementation": "reference"}
    expected, _ = stepped(inputs, first(inputs, **options), range(9))
    _, example = stepped(inputs, first(inputs, **options), range(4))
    auto = torch.export.Dim.AUTO
    of_state = [None, {1: auto, 2: auto}, {1: auto}] + ([] if window is None else [None])
    step = torch.export.export(
        Stepper(), (*(x[:, 0] for x in inputs.all[:4]), example), dynamic_shapes=(*[None] * 4, of_state), strict=False
    ).module()
    state = first(inputs, **options)
    for t in range(9):
        reading, state = step(*(x[:, t] for x in inputs.all[:4]), state)
        torch.testing.assert_close(reading, expected[:, t], rtol=0, atol=1e-14)


@pytest.mark.slow
def test_steps_of_the_definition_compile_without_a_break(random_inputs):
    inputs = random_inputs(2, 3, 1, 2)  # each step is traced anew, and each state and symbol adds nothing new
    compiled = torch.compile(
        lambda *x: by_steps(type(inputs)(*x), implementation="reference"), fullgraph=True, backend="aot_eager"
    )
    found = with_gradients(lambda x: compiled(*x.all), inputs)
    assert_same(found, with_gradients(whole, inputs, implementation="reference"), 1e-12)


def test_strides_of_axes_of_size_1_do_not_matter(random_inputs):
    inputs = random_inputs(3, 1, 2, 1)
    standard = [x[:, 0] for x in inputs.all[:4]]
    other = [x.clone() for x in standard]
    other[0] = other[0].as_strided((3, 2, 1, 2, 1), (4, 2, 4, 1, 1))  # as of a transposed tensor
    assert other[0].is_contiguous()
    assert torch.equal(other[0], standard[0])
    readings = [nondeterministic_stack_step(*each, first(inputs))[0] for each in (standard, other)]
    assert torch.equal(*readings)

"""The contract's rules: lengths, forbidden transitions, NaN, empty inputs, invariances, refusals."""

import pytest
import torch

from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack,
    nondeterministic_stack_best_run,
    nondeterministic_stack_log_weight,
    nondeterministic_stack_posteriors,
    nondeterministic_stack_weights,
)

IMPLEMENTATIONS = ["reference", "cpu"]


def readings_and_gradients(inputs, **options):
    leaves = [x.clone().requires_grad_() for x in inputs.all]
    readings = nondeterministic_stack(*leaves, **options)
    cotangent = torch.randn(readings.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    gradients = torch.autograd.grad(readings, leaves, cotangent.to(readings.dtype), materialize_grads=True)
    return readings.detach(), gradients


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_what_lies_past_the_length_counts_for_nothing(random_inputs, implementation):
    inputs = random_inputs(3, 9, 2, 2)
    lengths = torch.tensor([9, 4, 0])
    for x in inputs.all[:4]:
        x[1, 4:] = torch.nan
        x[2] = torch.nan
    readings, gradients = readings_and_gradients(inputs, lengths=lengths, implementation=implementation)
    assert not readings[1, 4:].any()
    assert not readings[2].any()
    for gradient in gradients[:4]:
        assert not gradient[1, 4:].any()
        assert not gradient[2].any()
    for b, n in enumerate(lengths.tolist()):
        alone = [x[b : b + 1, :n] for x in inputs.all[:4]]
        single = nondeterministic_stack(*alone, inputs.bottom, implementation=implementation)
        torch.testing.assert_close(readings[b : b + 1, :n], single, rtol=1e-14, atol=1e-14)
    weight = nondeterministic_stack_log_weight(*inputs.logits, lengths=lengths, implementation=implementation)
    assert not weight[1, 4:].any()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_nothing_allowed_gives_zeros_from_there_on(random_inputs, implementation):
    inputs = random_inputs(2, 8, 2, 2)
    for x in inputs.logits:
        x[0, 4] = -torch.inf
    readings, gradients = readings_and_gradients(inputs, implementation=implementation)
    assert not readings[0, 4:].any()
    assert readings[0, 3].any()
    assert all(not g[0, 4:].any() and g[0, 0].isfinite().all() for g in gradients[:4])
    weight = nondeterministic_stack_log_weight(*inputs.logits, implementation=implementation)
    assert (weight[0, 4:] == -torch.inf).all()
    assert weight[0, :4].isfinite().all()
    assert all(not p[0].any() for p in nondeterministic_stack_posteriors(*inputs.logits, implementation=implementation))
    best = nondeterministic_stack_best_run(*inputs.logits, implementation=implementation)
    assert best.log_weight[0] == -torch.inf
    assert best.log_weight[1].isfinite()


@pytest.mark.parametrize("states", [1, 2, 4])
def test_forbidden_transitions_equal_the_definition(random_inputs, states):
    for seed in range(8):
        inputs = random_inputs(1, 9, states, 2, scale=2.0, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        for x in inputs.logits:
            x[torch.rand(x.shape, generator=generator) < 0.5] = -torch.inf
        wanted, wanted_gradients = readings_and_gradients(inputs, implementation="reference")
        readings, gradients = readings_and_gradients(inputs, implementation="cpu")
        torch.testing.assert_close(readings, wanted, rtol=0, atol=1e-11)
        for x, r in zip(gradients, wanted_gradients, strict=True):
            torch.testing.assert_close(x, r, rtol=0, atol=1e-10)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_nan_stays_in_its_sequence_and_after_its_step(random_inputs, implementation, bad):
    inputs = random_inputs(2, 6, 2, 2)
    clean = nondeterministic_stack(*inputs.all, implementation=implementation)
    inputs.replace[0, 3, 0, 0, 0, 0] = bad
    readings, gradients = readings_and_gradients(inputs, implementation=implementation)
    assert readings[0, 3:].isnan().all()
    torch.testing.assert_close(readings[0, :3], clean[0, :3], rtol=0, atol=0)
    torch.testing.assert_close(readings[1], clean[1], rtol=0, atol=0)
    assert all(g[1].isfinite().all() for g in gradients[:4])


def test_nan_value_is_seen_from_its_step_on(random_inputs):
    inputs = random_inputs(1, 6, 2, 2)
    inputs.values[0, 2, 1] = torch.nan
    for implementation in IMPLEMENTATIONS:
        readings = nondeterministic_stack(*inputs.all, implementation=implementation)
        assert readings[0, 2:, ..., 1].isnan().all()
        assert readings[0, :2].isfinite().all()
        assert readings[..., 0].isfinite().all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(("batch", "time"), [(0, 5), (2, 0), (0, 0)])
def test_empty_batches_and_sequences(random_inputs, implementation, batch, time):
    inputs = random_inputs(batch, time, 2, 3)
    readings, gradients = readings_and_gradients(inputs, implementation=implementation)
    assert readings.shape == (batch, time, 2, 3, 3)
    assert [g.shape for g in gradients] == [x.shape for x in inputs.all]
    assert nondeterministic_stack_weights(*inputs.logits, implementation=implementation).shape[-1] == time + 1
    assert nondeterministic_stack_best_run(*inputs.logits, implementation=implementation).log_weight.shape == (batch,)


def test_vectors_of_size_zero(random_inputs):
    inputs = random_inputs(2, 5, 2, 3, vector=0)
    assert nondeterministic_stack(*inputs.all).shape == (2, 5, 2, 3, 0)


def test_a_constant_added_to_a_step_changes_nothing(random_inputs):
    inputs = random_inputs(2, 12, 2, 3, scale=3.0)
    shift = torch.linspace(-50, 50, 12, dtype=torch.float64)
    moved = [x + shift.view(1, -1, *[1] * (x.dim() - 2)) for x in inputs.logits]
    readings = nondeterministic_stack(*moved, inputs.values, inputs.bottom)
    torch.testing.assert_close(readings, nondeterministic_stack(*inputs.all), rtol=0, atol=1e-12)


def test_weights_sum_to_one_and_give_the_readings(random_inputs):
    inputs = random_inputs(2, 20, 3, 2, scale=3.0)
    weights = nondeterministic_stack_weights(*inputs.logits)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum((2, 3, 4)), torch.ones(2, 20, dtype=torch.float64), rtol=0, atol=1e-13)
    vectors = torch.cat([inputs.bottom.expand(2, 1, -1), inputs.values], 1)
    product = torch.einsum("btqsj,bjm->btqsm", weights, vectors)
    torch.testing.assert_close(nondeterministic_stack(*inputs.all), product, rtol=0, atol=1e-13)


def test_posteriors_sum_to_one_at_each_step(random_inputs):
    inputs = random_inputs(2, 20, 2, 3, scale=3.0)
    posteriors = nondeterministic_stack_posteriors(*inputs.logits)
    total = sum(p.flatten(2).sum(-1) for p in posteriors)
    torch.testing.assert_close(total, torch.ones(2, 20, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_posteriors_of_half_precision_hold_beyond_its_range(random_inputs, implementation):
    logits = [(x - 5000).half() for x in random_inputs(2, 20, 1, 2).logits]
    assert not nondeterministic_stack_log_weight(*logits)[:, -1].isfinite().any()
    found = nondeterministic_stack_posteriors(*logits, implementation=implementation)
    exact = nondeterministic_stack_posteriors(*(x.double() for x in logits))
    for half, wanted in zip(found, exact, strict=True):
        assert half.dtype == torch.float16
        # The definition's log-weights, near -100,000, have a spacing of 0.008 in float32; the kernel takes doubles.
        torch.testing.assert_close(half.double(), wanted, rtol=0, atol=0.03 if implementation == "reference" else 1e-3)


def test_later_steps_never_matter(random_inputs):
    inputs, other = random_inputs(2, 20, 2, 3), random_inputs(2, 20, 2, 3, seed=1)
    mixed = [torch.cat([a[:, :9], b[:, 9:]], 1) for a, b in zip(inputs.all[:4], other.all[:4], strict=True)]
    early = nondeterministic_stack(*mixed, inputs.bottom)[:, :9]
    assert torch.equal(early, nondeterministic_stack(*inputs.all)[:, :9])


def test_one_state_and_symbol_is_a_stack_of_positions(random_inputs):
    """With certain actions the weights follow the stack: push 1, push 2, pop, replace, push 5, pop, pop."""
    inputs = random_inputs(1, 7, 1, 1, scale=0.0)
    script = "pprRpPP"  # p push, r pop, R replace, P pop
    meaning = {"p": 0, "R": 1, "r": 2, "P": 2}
    for t, letter in enumerate(script):
        for kind, x in enumerate(inputs.logits):
            if kind != meaning[letter]:
                x[0, t] = -torch.inf
    top = nondeterministic_stack_weights(*inputs.logits)[0, :, 0, 0]
    assert top.argmax(-1).tolist() == [1, 2, 1, 1, 5, 1, 0]
    assert torch.equal(top.amax(-1), torch.ones(7, dtype=torch.float64))


def test_batches_threads_and_order_change_no_bit(random_inputs):
    inputs = random_inputs(5, 30, 2, 3).to(torch.float32)
    together, gradients = readings_and_gradients(inputs)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        again, same = readings_and_gradients(inputs)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(together, again)
    assert all(torch.equal(a, b) for a, b in zip(gradients, same, strict=True))
    order = torch.tensor([3, 1, 4, 0, 2])
    shuffled = nondeterministic_stack(*(x[order] for x in inputs.all[:4]), inputs.bottom)
    assert torch.equal(shuffled, together[order])


def test_non_contiguous_inputs(random_inputs):
    inputs = random_inputs(2, 6, 2, 3)
    strided = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in inputs.all[:4]]
    assert not strided[0].is_contiguous()
    assert torch.equal(nondeterministic_stack(*strided, inputs.bottom), nondeterministic_stack(*inputs.all))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(random_inputs, dtype):
    inputs = random_inputs(2, 12, 2, 3).to(dtype)
    readings = nondeterministic_stack(*inputs.all)
    assert readings.dtype == dtype
    exact = nondeterministic_stack(*inputs.to(torch.float64).all)
    torch.testing.assert_close(readings.double(), exact, rtol=torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


def test_autocast_takes_mixed_precisions(random_inputs):
    inputs = random_inputs(2, 12, 2, 3).to(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        readings = nondeterministic_stack(*inputs.logits, inputs.values.bfloat16(), inputs.bottom)
    assert readings.dtype == torch.float32
    wanted = nondeterministic_stack(*inputs.logits, inputs.values.bfloat16().float(), inputs.bottom)
    torch.testing.assert_close(readings, wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"push": torch.zeros(2, 5, 2, 3, 2)}, r"push has shape \(2, 5, 2, 3, 2\); expected \(B, T, Q, S, Q, S\)"),
        ({"replace": torch.zeros(2, 5, 2, 3, 2, 2)}, "replace has shape"),
        ({"pop": torch.zeros(2, 5, 2, 3, 3)}, "pop has shape"),
        ({"values": torch.zeros(2, 4, 3)}, "values has shape"),
        ({"bottom": torch.zeros(2)}, r"bottom has shape \(2,\)"),
        ({"bottom": torch.zeros(3, dtype=torch.float64)}, "bottom is torch.float64"),
        ({"lengths": torch.tensor([5.0, 5.0])}, r"integers \(B,\)"),
    ],
)
def test_bad_arguments_are_named(random_inputs, change, message):
    inputs = random_inputs(2, 5, 2, 3).to(torch.float32)
    arguments = {name: getattr(inputs, name) for name in ("push", "replace", "pop", "values", "bottom")} | change
    with pytest.raises(ValueError, match=message):
        nondeterministic_stack(**arguments)


def test_posteriors_name_a_wrong_shape():
    with pytest.raises(ValueError, match=r"push has shape \(3,\); expected \(B, T, Q, S, Q, S\)"):
        nondeterministic_stack_posteriors(*torch.zeros(3, 3))

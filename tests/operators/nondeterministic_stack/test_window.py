"""Pops that reach back only so far: against the enumeration of runs, the definition, and no window at all."""

import itertools
import math

import pytest
import torch

from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack,
    nondeterministic_stack_best_run,
    nondeterministic_stack_log_weight,
    nondeterministic_stack_posteriors,
    nondeterministic_stack_weights,
)
from structattn.operators.nondeterministic_stack.cpu import nondeterministic_stack_cpu

IMPLEMENTATIONS = ["reference", "cpu"]


def everything(inputs, **options):
    """Readings, weights and log-weights, and the gradient of all of them under fixed cotangents."""
    leaves = type(inputs)(*(x.detach().clone().requires_grad_() for x in inputs.all))
    outputs = [
        nondeterministic_stack(*leaves.all, **options),
        nondeterministic_stack_weights(*leaves.logits, **options),
        nondeterministic_stack_log_weight(*leaves.logits, **options),
    ]
    generator = torch.Generator().manual_seed(7)
    cotangents = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in outputs]
    gradients = torch.autograd.grad(outputs, leaves.all, cotangents, materialize_grads=True)
    return [x.detach() for x in outputs], gradients


def assert_same(found, wanted, tolerance):
    for results, definitions in zip(found, wanted, strict=True):
        for x, r in zip(results, definitions, strict=True):
            assert float((x - r).norm()) <= tolerance * max(float(r.norm()), 1.0)


@pytest.mark.covering(1)
@pytest.mark.parametrize(("time", "states", "symbols"), [(7, 1, 1), (5, 1, 2), (4, 2, 1), (4, 2, 2)])
@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_only_runs_without_far_pops_count(random_inputs, all_runs, time, states, symbols, window, implementation):
    inputs = random_inputs(1, time, states, symbols, scale=2.0)
    options = {"window": window, "implementation": implementation}
    runs = all_runs(*(x[0] for x in inputs.logits), window)
    weights = nondeterministic_stack_weights(*inputs.logits, **options)[0]
    log_weight = nondeterministic_stack_log_weight(*inputs.logits, **options)[0]
    for t in range(1, time + 1):
        total = math.log(math.fsum(math.exp(run.log_weight) for run in runs[t]))
        expected = torch.zeros(states, symbols, time + 1, dtype=torch.float64)
        for run in runs[t]:
            symbol, when = run.stack[-1]
            expected[run.state, symbol, when] += math.exp(run.log_weight - total)
        torch.testing.assert_close(weights[t - 1], expected, rtol=0, atol=1e-13)
        assert float(log_weight[t - 1]) == pytest.approx(total, rel=1e-12)
    posteriors = [torch.zeros_like(x[0]) for x in inputs.logits]
    for run in runs[time]:
        for t, (action, *index) in enumerate(run.transitions):
            posteriors[action][t, *index] += math.exp(run.log_weight - total)
    found = nondeterministic_stack_posteriors(*inputs.logits, **options)
    for got, want in zip(found, posteriors, strict=True):
        torch.testing.assert_close(got[0], want, rtol=0, atol=1e-12)
    best = max(runs[time], key=lambda run: run.log_weight)
    heaviest = nondeterministic_stack_best_run(*inputs.logits, **options)
    assert float(heaviest.log_weight) == pytest.approx(best.log_weight, rel=1e-12)
    steps = torch.stack([heaviest.actions[0], heaviest.states[0], heaviest.symbols[0]], -1)
    assert steps.tolist() == [list(step) for step in best.steps]


@pytest.mark.covering(1)
@pytest.mark.parametrize(("states", "symbols"), [*itertools.product((1, 2, 3), repeat=2), (4, 2)])
@pytest.mark.parametrize("window", [1, 2, 5, 8])
def test_kernel_equals_definition(random_inputs, states, symbols, window):
    inputs = random_inputs(2, 12, states, symbols, scale=2.0)
    wanted = everything(inputs, window=window, implementation="reference")
    assert_same(everything(inputs, window=window, implementation="cpu"), wanted, 1e-10)


@pytest.mark.parametrize("time", [24, 33, 50])
@pytest.mark.parametrize("window", [1, 7, 8, 9, 16, 23])
def test_kernel_equals_twin_where_rows_begin_late(random_inputs, time, window):
    inputs = random_inputs(2, time, 2, 3, scale=2.0)
    lengths = torch.tensor([time, time - 3])
    results = []
    for wide in (False, True):
        leaves = [x.clone().requires_grad_() for x in inputs.all]
        readings, log_weight, _ = nondeterministic_stack_cpu(*leaves, lengths, window, wide)
        results.append(
            (
                [readings.detach(), log_weight.detach()],
                torch.autograd.grad((readings.sin().sum(), log_weight.sum()), leaves),
            )
        )
    assert_same(*results, 1e-12)


@pytest.mark.parametrize("scale", [300, 1e4])
def test_wild_logits_keep_to_the_window(random_inputs, scale):
    inputs = random_inputs(2, 15, 2, 3, scale=scale)
    wanted = everything(inputs, window=4, implementation="reference")
    assert_same(everything(inputs, window=4, implementation="cpu"), wanted, 1e-10)


@pytest.mark.quick("19-cpu", "20-cpu", "1000-reference")
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("window", [19, 20, 1000])
def test_a_window_as_long_as_the_sequence_changes_no_bit(random_inputs, implementation, window):
    inputs = random_inputs(2, 20, 2, 2)
    found = everything(inputs, window=window, implementation=implementation)
    for results, wanted in zip(found, everything(inputs, implementation=implementation), strict=True):
        assert all(torch.equal(x, r) for x, r in zip(results, wanted, strict=True))


def test_an_old_item_can_be_replaced_and_pushed_on_but_not_popped(random_inputs):
    """With certain actions: push at 1, wait until 4 with a window of 2; a pop at 4 is impossible, at 3 it is not."""
    inputs = random_inputs(1, 4, 1, 1, scale=0.0)
    for t, kind in enumerate((0, 1, 2, 2)):
        for other, x in enumerate(inputs.logits):
            if other != kind:
                x[0, t] = -torch.inf
    weights = nondeterministic_stack_weights(*inputs.logits, window=2)[0, :, 0, 0]
    assert weights[:3].argmax(-1).tolist() == [1, 1, 0]
    inputs.replace[0, 2], inputs.pop[0, 2] = 0.0, -torch.inf
    assert not nondeterministic_stack_weights(*inputs.logits, window=2)[0, 3].any()
    assert nondeterministic_stack_log_weight(*inputs.logits, window=2)[0, 3] == -torch.inf
    inputs.replace[0, 3] = 0.0
    assert nondeterministic_stack_weights(*inputs.logits, window=2)[0, 3, 0, 0].argmax() == 1


@pytest.mark.parametrize("window", [0, -1, 2.5, float("inf"), float("nan")])
def test_a_window_is_a_whole_number(random_inputs, window):
    inputs = random_inputs(1, 2, 1, 1)
    with pytest.raises(ValueError, match=f"window={window}; expected a whole number of at least 1"):
        nondeterministic_stack(*inputs.all, window=window)


def test_compiles_with_a_window(random_inputs):
    inputs = random_inputs(2, 12, 2, 2)
    compiled = torch.compile(nondeterministic_stack, fullgraph=True, backend="aot_eager", dynamic=True)
    assert torch.equal(compiled(*inputs.all, window=3), nondeterministic_stack(*inputs.all, window=3))

"""Every function against the enumeration of all runs, for both implementations."""

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

SIZES = [(6, 1, 1), (5, 1, 2), (4, 2, 1), (4, 2, 2), (3, 2, 2), (2, 2, 2), (1, 2, 2)]
pytestmark = [
    pytest.mark.covering(1),
    pytest.mark.parametrize(("time", "states", "symbols"), SIZES),
    pytest.mark.parametrize("implementation", ["reference", "cpu"]),
]


def log_total(runs):
    top = max(run.log_weight for run in runs)
    return top + math.log(math.fsum(math.exp(run.log_weight - top) for run in runs))


def test_weights_and_readings_are_sums_over_all_runs(random_inputs, all_runs, time, states, symbols, implementation):
    inputs = random_inputs(1, time, states, symbols, scale=2.0)
    runs = all_runs(*(x[0] for x in inputs.logits))
    expected = torch.zeros(time, states, symbols, time + 1, dtype=torch.float64)
    for t in range(1, time + 1):
        total = log_total(runs[t])
        for run in runs[t]:
            symbol, when = run.stack[-1]
            expected[t - 1, run.state, symbol, when] += math.exp(run.log_weight - total)
    weights = nondeterministic_stack_weights(*inputs.logits, implementation=implementation)[0]
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-13)
    vectors = torch.cat([inputs.bottom[None], inputs.values[0]])
    readings = nondeterministic_stack(*inputs.all, implementation=implementation)[0]
    torch.testing.assert_close(readings, expected @ vectors, rtol=0, atol=1e-12)


def test_log_weight_and_posteriors_count_all_runs(random_inputs, all_runs, time, states, symbols, implementation):
    inputs = random_inputs(1, time, states, symbols, scale=2.0, seed=1)
    runs = all_runs(*(x[0] for x in inputs.logits))
    weight = nondeterministic_stack_log_weight(*inputs.logits, implementation=implementation)[0]
    expected = torch.tensor([log_total(runs[t]) for t in range(1, time + 1)], dtype=torch.float64)
    torch.testing.assert_close(weight, expected, rtol=1e-12, atol=1e-12)
    posteriors = [torch.zeros_like(x[0]) for x in inputs.logits]
    for run in runs[time]:
        for t, (action, *index) in enumerate(run.transitions):
            posteriors[action][t, *index] += math.exp(run.log_weight - float(expected[-1]))
    for got, want in zip(
        nondeterministic_stack_posteriors(*inputs.logits, implementation=implementation), posteriors, strict=True
    ):
        torch.testing.assert_close(got[0], want, rtol=0, atol=1e-12)


def test_best_run_is_the_heaviest_of_all(random_inputs, all_runs, time, states, symbols, implementation):
    for seed in range(5):
        inputs = random_inputs(1, time, states, symbols, scale=3.0, seed=seed)
        best = max(all_runs(*(x[0] for x in inputs.logits))[time], key=lambda run: run.log_weight)
        found = nondeterministic_stack_best_run(*inputs.logits, implementation=implementation)
        assert float(found.log_weight) == pytest.approx(best.log_weight, rel=1e-12)
        steps = torch.stack([found.actions[0], found.states[0], found.symbols[0]], -1)
        assert steps.tolist() == [list(step) for step in best.steps]

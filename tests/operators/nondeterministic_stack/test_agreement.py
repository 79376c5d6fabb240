"""The kernel against the definition: readings, log-weights and every gradient, on awkward sizes and wild logits.

The error of a result x against its definition r is ‖x - r‖ / max(‖r‖, ‖cotangent‖ for gradients).
"""

import itertools
import math

import pytest
import torch

from structattn.operators.nondeterministic_stack import nondeterministic_stack, nondeterministic_stack_weights
from structattn.operators.nondeterministic_stack.arguments import checked_arguments
from structattn.operators.nondeterministic_stack.cpu import nondeterministic_stack_cpu
from structattn.operators.nondeterministic_stack.reference import reference_readings

SMALL = list(itertools.product((1, 2, 3), repeat=2))


def error(result, definition, cotangent=0.0):
    return float((result.double() - definition).norm()) / max(float(definition.norm()), cotangent, 1e-300)


def kernel(inputs, window=None, wide=False):
    batch, time = inputs.push.shape[:2]
    return nondeterministic_stack_cpu(*inputs.all, torch.full((batch,), time), window, wide)[:2]


def definition(inputs, window=None):
    return reference_readings(checked_arguments(*inputs.all, None, window))


def with_gradients(function, inputs, **options):
    """Outputs, and the gradients under one random cotangent for the readings and one for the log-weights."""
    leaves = type(inputs)(*(x.detach().clone().requires_grad_() for x in inputs.all))
    outputs = function(leaves, **options)
    generator = torch.Generator().manual_seed(7)
    cotangents = [torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype) for x in outputs]
    gradients = torch.autograd.grad(outputs, leaves.all, cotangents, materialize_grads=True)
    size = sum(float(c.double().norm()) ** 2 for c in cotangents) ** 0.5
    return [x.detach() for x in outputs], gradients, size


def assert_agree(inputs, tolerance, *, single=None, window=None, wide=False):
    wanted, wanted_gradients, size = with_gradients(definition, inputs, window=window)
    for dtype, limit in ((torch.float64, tolerance), (torch.float32, single)):
        if limit is None:
            continue
        outputs, gradients, _ = with_gradients(kernel, inputs.to(dtype), window=window, wide=wide)
        for x, r in zip(outputs, wanted, strict=True):
            assert error(x, r) < limit
        for x, r in zip(gradients, wanted_gradients, strict=True):
            assert error(x, r, size) < limit


@pytest.mark.covering(1)
@pytest.mark.parametrize(("states", "symbols"), SMALL)
@pytest.mark.parametrize("scale", [0.1, 1, 3, 10, 30])
def test_kernel_equals_definition(random_inputs, states, symbols, scale):
    # The definition in float64 sees the float32 inputs, so that only the kernel's own rounding counts.
    inputs = random_inputs(2, 17, states, symbols, scale=scale).to(torch.float32).to(torch.float64)
    assert_agree(inputs, 1e-10, single=1e-5)


@pytest.mark.parametrize(("states", "symbols"), [(1, 1), (2, 3), (3, 2)])
@pytest.mark.parametrize("time", [1, 2, 3, 7, 8, 9, 31, pytest.param(64, marks=pytest.mark.slow)])
def test_kernel_equals_definition_at_every_edge_of_a_vector(random_inputs, states, symbols, time):
    assert_agree(random_inputs(1, time, states, symbols, scale=2.0, vector=5, seed=time), 1e-10)


@pytest.mark.parametrize(("states", "symbols"), [(4, 1), (1, 4), (4, 2)])
def test_sizes_without_a_compiled_form_equal_the_definition(random_inputs, states, symbols):
    assert_agree(random_inputs(2, 9, states, symbols, scale=2.0), 1e-10, single=1e-5)


@pytest.mark.covering(1)
@pytest.mark.parametrize(("states", "symbols"), [(1, 1), (2, 3), (3, 3)])
@pytest.mark.parametrize("scale", [1, 30, 300, 1e4])
def test_twin_equals_definition(random_inputs, states, symbols, scale):
    assert_agree(random_inputs(2, 15, states, symbols, scale=scale), 1e-10, wide=True)


@pytest.mark.parametrize("scale", [300, 1e4])
def test_guard_takes_wild_logits_to_the_twin(random_inputs, scale):
    assert_agree(random_inputs(2, 15, 2, 3, scale=scale), 1e-10)


def regime_change(random_inputs, time, spread, seed=3):
    """Logits with a bias for each transition that changes its sign half-way."""
    inputs = random_inputs(2, time, 2, 3, seed=seed)
    bias = random_inputs(1, 1, 2, 3, scale=spread, seed=seed + 1)
    sign = torch.where(torch.arange(time) < time // 2, 1.0, -1.0).double()
    logits = [x + sign.view(1, -1, *[1] * (x.dim() - 2)) * b for x, b in zip(inputs.logits, bias.logits, strict=True)]
    return type(inputs)(*logits, inputs.values, inputs.bottom)


@pytest.mark.quick("30")
@pytest.mark.parametrize("spread", [10, 30, 60])
def test_a_change_of_regime_half_way_loses_nothing(random_inputs, spread):
    assert_agree(regime_change(random_inputs, 40, spread), 1e-10, single=1e-5)


def test_kernel_equals_twin_at_lengths_beyond_the_definition(random_inputs):
    inputs = random_inputs(1, 150, 2, 3, scale=2.0)
    outputs, gradients, size = with_gradients(kernel, inputs)
    wanted, wanted_gradients, _ = with_gradients(kernel, inputs, wide=True)
    assert all(error(x, r) < 1e-12 for x, r in zip(outputs, wanted, strict=True))
    assert all(error(x, r, size) < 1e-12 for x, r in zip(gradients, wanted_gradients, strict=True))


def test_what_has_underflowed_and_comes_back_is_found_again(random_inputs):
    """A push of weight e^-800 that later steps raise again: doubles have lost it, the guard must notice."""
    inputs = random_inputs(1, 4, 1, 1, scale=0.0)
    inputs.push[0, 0] = -800.0
    inputs.push[0, 1:] = -torch.inf
    inputs.pop[0, 2] = 1600.0
    assert_agree(inputs, 1e-10)
    weights = nondeterministic_stack_weights(*inputs.logits)[0, :, 0, 0]
    # In step 3 only the run that pushed can pop; it then weighs e^800 against 1, and shows the bottom vector.
    assert weights[1, 1] < 1e-300
    assert float(nondeterministic_stack(*inputs.logits, inputs.values, inputs.bottom)[0, 2, 0, 0, 0]) == pytest.approx(
        float(inputs.bottom[0]), rel=1e-12
    )


def test_what_underflows_in_the_step_that_pops_it(random_inputs):
    """An item of weight 2e-290 is popped with e^800, and then the runs that popped it are the heaviest."""
    inputs = random_inputs(1, 3, 2, 2, scale=0.0)
    for logits in inputs.logits:
        logits.fill_(-1e4)
    first = inputs.push[0, 0, 0, 0], inputs.replace[0, 0, 0, 0]
    for after in first:
        after.fill_(math.log(2e-290))
    first[0][0, 0], first[0][0, 1], first[1][0, 0] = math.log(3e-290), math.log(1e-3), 0
    inputs.pop[0, 1, 0, 0, 0], inputs.pop[0, 1, 0, 1, 1], inputs.replace[0, 1, 0, 0, 0, 0] = 800, 0, 0
    for q in (0, 1):
        for x in (0, 1):
            inputs.replace[0, 2, q, x, q, x] = 590 * q
    assert_agree(inputs, 1e-10)


@pytest.mark.parametrize(("states", "symbols"), [(1, 1), (2, 2), (3, 3)])
def test_weights_have_the_gradient_of_the_definition(random_inputs, states, symbols):
    inputs = random_inputs(2, 11, states, symbols, scale=2.0)
    results = []
    for implementation in ("reference", "cpu"):
        leaves = [x.clone().requires_grad_() for x in inputs.logits]
        weights = nondeterministic_stack_weights(*leaves, implementation=implementation)
        cotangent = torch.randn(weights.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        results.append((weights, torch.autograd.grad(weights, leaves, cotangent), float(cotangent.norm())))
    (wanted, wanted_gradients, size), (weights, gradients, _) = results
    assert error(weights.detach(), wanted.detach()) < 1e-12
    assert all(error(x, r, size) < 1e-12 for x, r in zip(gradients, wanted_gradients, strict=True))

"""Large logits against exact sums of rational numbers, and the limits beyond which they are refused."""

import math
from fractions import Fraction

import pytest
import torch

from structattn.operators import (
    nondeterministic_stack,
    nondeterministic_stack_log_weight,
    nondeterministic_stack_posteriors,
    nondeterministic_stack_weights,
)
from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack_initial_state,
    nondeterministic_stack_step,
)

SIZES = [(5, 1, 1), (3, 2, 1), (3, 1, 2), (2, 4, 1)]  # steps, states, symbols; the last without a compiled form


def logits_of(kind, scale, n, Q, S, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        large = torch.rand(shape, generator=generator) < 0.5
        numbers = {
            "normal": (scale * x).clamp(-scale, scale),
            "sign": scale * x.sign(),
            "common": scale + x,
            "mixed": torch.where(large, scale * x.sign(), x),
            "mask": torch.where(large, -scale, x),
        }
        return numbers[kind].to(dtype)

    return draw(n, Q, S, Q, S), draw(n, Q, S, Q, S), draw(n, Q, S, Q)


def extended(runs, t, push, replace, pop):
    """Runs (log-weight, state, stack of (symbol, time)) that are one step longer; log-weights are rational numbers."""
    for weight, q, stack in runs:
        x, when = stack[-1]
        for r in range(len(push[t])):
            for y in range(len(push[t][0])):
                yield weight + Fraction(push[t][q][x][r][y]), r, (*stack, (y, t + 1))
                yield weight + Fraction(replace[t][q][x][r][y]), r, (*stack[:-1], (y, when))
            if len(stack) > 1:
                yield weight + Fraction(pop[t][q][x][r]), r, stack[:-1]


def exact_weights(push, replace, pop):
    """The weights (T, Q, S, T + 1): of differences of log-weights only the exponential is rounded."""
    n, Q, S = push.shape[:3]
    result, runs = torch.zeros(n, Q, S, n + 1, dtype=torch.float64), [(Fraction(0), 0, ((0, 0),))]
    given = push.tolist(), replace.tolist(), pop.tolist()
    for t in range(n):
        runs = list(extended(runs, t, *given))
        top = max(weight for weight, *_ in runs)
        for weight, q, stack in runs:
            symbol, when = stack[-1]
            result[t, q, symbol, when] += math.exp(max(weight - top, -800))
    return result / result.sum((1, 2, 3), keepdim=True)


def error(found, wanted):
    return ((found.double() - wanted).norm() / wanted.norm()).item()


@pytest.mark.quick("1e+16-sign", "1e+30-mixed", "1e+12-normal", "1e+18-common", "1e+30-mask", "1e+06-sign")
@pytest.mark.parametrize("kind", ["normal", "sign", "common", "mixed", "mask"])
@pytest.mark.parametrize("scale", [1e4, 1e6, 1e9, 1e12, 1e15, 1e16, 1e18, 1e24, 1e30], ids="{:.0e}".format)
def test_large_logits(scale, kind):
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 1e-6)):
        for seed, (n, Q, S) in enumerate(SIZES):
            # float32 rounds 1e30 up
            logits = logits_of(kind, scale if dtype == torch.float64 else scale * (1 - 2**-20), n, Q, S, dtype, seed)
            wanted = exact_weights(*logits)
            batch = [x[None] for x in logits]
            assert error(nondeterministic_stack_weights(*batch, implementation="cpu")[0], wanted) < tolerance


@pytest.mark.parametrize("scale", [1e9, 1e16, 1e30])
def test_steps_and_gradients_of_large_logits(scale):
    """A constant added to all logits changes neither readings nor gradients."""
    n, Q, S = 4, 2, 2
    # Multiples of 2^-8 keep their bits when 1e9 is added; larger constants round them, and ``rest`` is what remains.
    small = [torch.round(x * 256) / 256 for x in logits_of("normal", 1.0, n, Q, S, torch.float64)]
    large = [x + scale for x in small]
    rest = [x - scale for x in large]
    values, bottom = torch.randn(1, n, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    results = []
    for logits in (large, rest):
        leaves = [x[None].clone().requires_grad_() for x in logits]
        readings = nondeterministic_stack(*leaves, values, bottom, implementation="cpu")
        gradients = torch.autograd.grad(readings.square().sum(), leaves)
        state, steps = nondeterministic_stack_initial_state(bottom, 1, Q, S, implementation="cpu"), []
        for t in range(n):
            reading, state = nondeterministic_stack_step(*(x[:, t] for x in leaves), values[:, t], state)
            steps.append(reading)
        stepwise = torch.autograd.grad(torch.stack(steps, 1).square().sum(), leaves)
        results.append((readings, *gradients, torch.stack(steps, 1), *stepwise))
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_masks_of_any_size_do_not_matter_where_there_are_other_transitions():
    push, replace, pop = (x[None] for x in logits_of("normal", 1.0, 6, 2, 2, torch.float32))
    lowest, masks = torch.finfo(torch.float32).min, []
    for value in (-torch.inf, lowest, -1e30, -1e9):
        masked = push.clone()
        masked[..., 1, 0] = value
        masks.append(nondeterministic_stack_weights(masked, replace, pop, implementation="cpu"))
    for found in masks[1:]:
        torch.testing.assert_close(found, masks[0])


@pytest.mark.parametrize(
    "function",
    [
        nondeterministic_stack_weights,
        nondeterministic_stack_log_weight,
        nondeterministic_stack_posteriors,
    ],
)
@pytest.mark.parametrize("value", [3e30, -3e38])
def test_logits_beyond_the_range_are_refused(function, value):
    logits = [torch.full(shape, value) for shape in ((1, 3, 2, 1, 2, 1), (1, 3, 2, 1, 2, 1), (1, 3, 2, 1, 2))]
    with pytest.raises(ValueError, match=r"the logit -?3e\+3[08]; expected -1e30 to 1e30, or -inf to forbid it"):
        function(*logits, implementation="cpu")
    function(*logits, lengths=torch.tensor([0]), implementation="cpu")  # past the length anything may stand


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_definition_refuses_log_weights_that_its_precision_cannot_hold(dtype):
    limit = 2.0**-6 / torch.finfo(dtype).eps
    push, replace, pop = (x[None] for x in logits_of("normal", 1.0, 3, 1, 2, dtype))
    masked = push.clone()
    masked[..., 0] = -2 * limit  # harmless, because other transitions are possible
    nondeterministic_stack_weights(masked, replace, pop, implementation="reference")
    push, replace = push + limit, replace + limit
    message = r"the definition's log-weights exceed .* scale the logits down"
    with pytest.raises(ValueError, match=message):
        nondeterministic_stack_weights(push, replace, pop, implementation="reference")
    state = nondeterministic_stack_initial_state(push.new_zeros(3), 1, 1, 2, implementation="reference")
    step = [x[:, 1] + limit for x in (push, replace, pop)]
    with pytest.raises(ValueError, match=message):
        nondeterministic_stack_step(*step, push.new_zeros(1, 3), state)

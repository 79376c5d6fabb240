"""Hostile numbers: no finite input gives NaN, and all agree with the definition."""

import os

import pytest
import torch

from structattn.operators.nondeterministic_stack import nondeterministic_stack

# 500 here; STRUCTATTN_ADVERSARIAL=10000 runs the promise in full.
CASES = int(os.environ.get("STRUCTATTN_ADVERSARIAL", "500"))
BATCH = 20


def hostile(generator, shape):
    """Numbers from a mixture of 0, denormals, ±88, ±1e4, alternating huge signs and ordinary ones, with some -inf."""
    kind = int(torch.randint(6, (), generator=generator))
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    sign = torch.where(torch.rand(shape, generator=generator) < 0.5, 1.0, -1.0).double()
    x = [torch.zeros_like(normal), 5e-324 * sign, 88 * sign, 1e4 * sign, 1e4 * sign * normal, normal][kind]
    forbidden = torch.rand(shape, generator=generator) < (0.2 if torch.rand((), generator=generator) < 0.5 else 0.0)
    return torch.where(forbidden, -torch.inf, x)


@pytest.mark.parametrize("case", range(CASES // BATCH))
def test_hostile_logits(case):
    generator = torch.Generator().manual_seed(case)
    states, symbols, time = (int(torch.randint(1, end, (), generator=generator)) for end in (4, 4, 9))
    shape = (BATCH, time, states, symbols, states, symbols)
    logits = [hostile(generator, s) for s in (shape, shape, shape[:-1])]
    values, bottom = (torch.randn(s, generator=generator, dtype=torch.float64) for s in ((BATCH, time, 2), (2,)))
    results = []
    for implementation in ("reference", "cpu"):
        leaves = [x.clone().requires_grad_() for x in (*logits, values, bottom)]
        readings = nondeterministic_stack(*leaves, implementation=implementation)
        cotangent = torch.ones_like(readings)
        results.append((readings.detach(), torch.autograd.grad(readings, leaves, cotangent, materialize_grads=True)))
    (wanted, wanted_gradients), (readings, gradients) = results
    assert readings.isfinite().all()
    size = wanted.numel() ** 0.5
    # Log-weights reach 1e5 here, of which the definition keeps 1e-11: single numbers of a reading can be off by more.
    for x, r in zip((readings, *gradients), (wanted, *wanted_gradients), strict=True):
        assert x.isfinite().all()
        assert float((x - r).norm()) / max(float(r.norm()), size) < 1e-10

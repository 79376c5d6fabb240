"""Hostile numbers: no finite input gives NaN, and all agree with the definition."""

import pytest
import torch
from adversarial import batches_of

from structattn.operators.nondeterministic_stack import nondeterministic_stack

BATCH = 20


@pytest.mark.parametrize("case", batches_of(BATCH))
def test_hostile_logits(case, hostile):
    generator = torch.Generator().manual_seed(case)
    states, symbols, time = (int(torch.randint(1, end, (), generator=generator)) for end in (4, 4, 9))
    shape = (BATCH, time, states, symbols, states, symbols)
    forbidden = [0.2 if torch.rand((), generator=generator) < 0.5 else 0.0 for _ in range(3)]
    logits = [hostile(generator, s, f) for s, f in zip((shape, shape, shape[:-1]), forbidden, strict=True)]
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

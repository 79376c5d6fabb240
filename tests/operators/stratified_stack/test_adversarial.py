"""Hostile numbers: no finite input gives NaN, and the fast forms agree with the definition."""

import os

import pytest
import torch

from structattn.operators import stratified_stack
from structattn.operators.common import implementation as choice

# 500 here; STRUCTATTN_ADVERSARIAL=10000 runs the promise in full.
CASES = int(os.environ.get("STRUCTATTN_ADVERSARIAL", "500"))
BATCH = 20


def strengths(hostile, generator, time):
    """Strengths, many of them 0, 1 or denormal, or far above 1; and whether sums of them hardly ever tie."""
    if torch.rand((), generator=generator) < 0.3:
        return torch.rand((BATCH, time, 2), generator=generator, dtype=torch.float64), True
    given = hostile(generator, (BATCH, time, 2))
    return (torch.sigmoid(given) if torch.rand((), generator=generator) < 0.7 else given.abs()), False


@pytest.mark.parametrize("implementation", ["cpu", "gpu"])
@pytest.mark.parametrize("case", range(CASES // BATCH))
def test_hostile_numbers(case, implementation, hostile, monkeypatch):
    monkeypatch.setattr(choice, "why_no_gpu_kernel", lambda _: None)
    generator = torch.Generator().manual_seed(case)
    time, vector = (int(torch.randint(1, end, (), generator=generator)) for end in (40, 20))
    actions, smooth = strengths(hostile, generator, time)
    given = [actions, hostile(generator, (BATCH, time, vector))]
    cotangent = hostile(generator, (BATCH, time, vector))
    lengths = torch.randint(time + 1, (BATCH,), generator=generator)
    results = []
    for form in ("reference", implementation):
        leaves = [x.clone().requires_grad_() for x in given]
        readings = stratified_stack(*leaves, lengths=lengths, implementation=form)
        results.append((readings.detach(), torch.autograd.grad(readings, leaves, cotangent)))
    (wanted, wanted_gradients), (readings, gradients) = results
    assert readings.isfinite().all()
    assert float((readings - wanted).norm()) <= 1e-12 * max(float(wanted.norm()), 1e-300)
    for x, r in zip(gradients, wanted_gradients, strict=True):
        assert x.isfinite().all()
        # At a tie the slope jumps, and rounding decides which side of it a sum falls on.
        assert not smooth or float((x - r).norm()) <= 1e-10 * max(float(r.norm()), float(cotangent.norm()), 1e-300)

"""Hostile numbers: no finite input gives NaN, and the fast forms agree with the definition."""

from functools import partial

import pytest
import torch
from adversarial import assert_agree, batches_of, with_gradients

from structattn.operators import stratified_stack
from structattn.operators.common import implementation as choice

BATCH = 20


def strengths(hostile, generator, time):
    """Strengths, many of them 0, 1 or denormal, or far above 1; and whether sums of them hardly ever tie."""
    if torch.rand((), generator=generator) < 0.3:
        return torch.rand((BATCH, time, 2), generator=generator, dtype=torch.float64), True
    given = hostile(generator, (BATCH, time, 2))
    return (torch.sigmoid(given) if torch.rand((), generator=generator) < 0.7 else given.abs()), False


@pytest.mark.parametrize("implementation", ["cpu", "gpu"])
@pytest.mark.parametrize("case", batches_of(BATCH))
def test_hostile_numbers(case, implementation, hostile, monkeypatch):
    monkeypatch.setattr(choice, "why_no_gpu_kernel", lambda _: None)
    generator = torch.Generator().manual_seed(case)
    time, vector = (int(torch.randint(1, end, (), generator=generator)) for end in (40, 20))
    actions, smooth = strengths(hostile, generator, time)
    given = [actions, hostile(generator, (BATCH, time, vector))]
    cotangent = hostile(generator, (BATCH, time, vector))
    lengths = torch.randint(time + 1, (BATCH,), generator=generator)
    wanted, found = (
        with_gradients(partial(stratified_stack, lengths=lengths, implementation=form), given, cotangent)
        for form in ("reference", implementation)
    )
    # At a tie the slope jumps, and rounding decides which side of it a sum falls on.
    assert_agree(found, wanted, cotangent, slopes=smooth)

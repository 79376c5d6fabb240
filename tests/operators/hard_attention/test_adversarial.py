"""Hostile scores: no finite input gives NaN, and nothing hidden is ever chosen."""

import pytest
import torch
from adversarial import batches_of

from structattn.operators import hard_attention

BATCH = 20


def hostile(generator, shape):
    """Numbers from a mixture of 0, denormals, ±88, ±1e4, huge and ordinary ones, with some -inf."""
    kind = int(torch.randint(6, (), generator=generator))
    normal = torch.randn(shape, generator=generator)
    sign = torch.where(torch.rand(shape, generator=generator) < 0.5, 1.0, -1.0)
    x = [torch.zeros_like(normal), 1e-45 * sign, 88 * sign, 1e4 * sign, 3e38 * sign, normal][kind]
    forbidden = torch.rand(shape, generator=generator) < (0.4 if torch.rand((), generator=generator) < 0.5 else 0.0)
    return torch.where(forbidden, -torch.inf, x)


@pytest.mark.parametrize("case", batches_of(BATCH))
def test_hostile_scores(case):
    generator = torch.Generator().manual_seed(case)
    torch.manual_seed(case)
    queries, keys = (int(torch.randint(1, 12, (), generator=generator)) for _ in range(2))
    scores = hostile(generator, (BATCH, 2, queries, keys)).requires_grad_()
    values = torch.randn(BATCH, 2, keys, 3, generator=generator, requires_grad=True)
    for temperature in (0.0, 1e-30, 0.1, 1.0, 1e30):
        for options in ({}, {"sample": True}, {"sample": True, "straight_through": True}):
            readings, choices, weights = hard_attention(scores, values, temperature, **options, return_weights=True)
            gradients = torch.autograd.grad(readings.sum(), [scores, values], allow_unused=True, materialize_grads=True)
            assert all(tensor.isfinite().all() for tensor in (readings, weights, *gradients))
            assert torch.equal(choices == -1, (scores == -torch.inf).all(-1))
            chosen = scores.gather(-1, choices.clamp(min=0)[..., None])[..., 0]
            assert (chosen[choices >= 0] > -torch.inf).all()
            torch.testing.assert_close(weights.sum(-1), (choices >= 0).float())
            torch.testing.assert_close(readings, weights @ values)
            if not options:
                assert torch.equal(chosen[choices >= 0], scores.amax(-1)[choices >= 0])

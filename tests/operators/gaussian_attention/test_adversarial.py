"""Hostile numbers and odd centres: no finite input gives NaN, and the kernel agrees with the definition."""

import pytest
import torch
from adversarial import batches_of

from structattn.operators import gaussian_attention

BATCH = 20


def drawn(generator, choices):
    return choices[int(torch.randint(len(choices), (), generator=generator))]


def hostile(generator, shape):
    """Numbers that are 0, denormal, ±88, ±1e4, huge or ordinary."""
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    sign = torch.where(torch.rand(shape, generator=generator) < 0.5, 1.0, -1.0).double()
    return drawn(generator, [0 * normal, 5e-324 * sign, 88 * sign, 1e4 * sign, 1e300 * sign, normal])


@pytest.mark.parametrize("case", batches_of(BATCH))
def test_hostile_values_and_centres(case):
    generator = torch.Generator().manual_seed(case)
    queries, keys, size = (int(torch.randint(end, (), generator=generator)) for end in (30, 30, 40))
    offsets = [drawn(generator, [-1, 0, 1, 0.5, -0.5, 1e9, -1e9, 7.3, 0.49999999999999994]) for _ in range(3)]
    values = hostile(generator, (BATCH, 3, keys, size))
    cotangent = hostile(generator, (BATCH, 3, queries, size))
    options = {
        "ratio": drawn(generator, [1.0, 0.0, 0.963, 3.7, 1e9]),
        "floor": drawn(generator, [True, False]),
        "sigma": drawn(generator, [1.0, 0.01, 40.0]),
        "kernel": drawn(generator, ["full", "window", "index"]),
        "window": drawn(generator, [1, 3, 101]),
        "causal": drawn(generator, [True, False]),
        "normalize": drawn(generator, [True, False]),
        "first": drawn(generator, [0, 3]),
        "lengths": torch.randint(queries + 1, (BATCH,), generator=generator),
        "memory_lengths": torch.randint(keys + 1, (BATCH,), generator=generator),
    }
    results = []
    for implementation in ("reference", "cpu"):
        leaf = values.clone().requires_grad_()
        outputs = gaussian_attention(leaf, offsets, queries=queries, **options, implementation=implementation)
        results.append((outputs.detach(), *torch.autograd.grad(outputs, leaf, cotangent)))
    for result, expected in zip(*results, strict=True):
        assert result.isfinite().all()
        scale = max(float(expected.abs().max()) if expected.numel() else 0.0, 1e-300)
        torch.testing.assert_close(result / scale, expected / scale, rtol=0, atol=1e-13)

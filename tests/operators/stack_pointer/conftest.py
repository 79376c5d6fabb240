"""Random inputs of stack pointer attention, and how two results are compared."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor


@pytest.fixture
def random_inputs() -> Callable[..., tuple[Tensor, Tensor]]:
    """Actions (B, T, 3), probabilities unless told otherwise, and values (B, T + 1, d); both want gradients."""

    def make(batch, time, vector, dtype=torch.float64, seed=0, scale=1.0, normalized=True):
        generator = torch.Generator().manual_seed(seed)
        logits = scale * torch.randn(batch, time, 3, generator=generator, dtype=dtype)
        values = torch.randn(batch, time + 1, vector, generator=generator, dtype=dtype)
        return (torch.softmax(logits, -1) if normalized else logits).requires_grad_(), values.requires_grad_()

    return make


@pytest.fixture
def assert_close() -> Callable[..., None]:
    """‖x - r‖ / max(‖r‖, floor) is under the tolerance."""

    def check(result, expected, tolerance, floor=0.0):
        error = (result.double() - expected.double()).norm()
        assert error <= tolerance * max(expected.double().norm().item(), floor)

    return check

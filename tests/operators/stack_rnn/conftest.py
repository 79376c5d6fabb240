"""Random networks with stacks."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from structattn.operators import RecurrentStack
from structattn.operators.stack_rnn import gate_factor

Leaves = list[Tensor]


@pytest.fixture
def random_network() -> Callable[..., Leaves]:
    """Inputs (B, T, G), then the maps, so that hidden vectors neither vanish nor saturate; leaves with gradients."""

    def draw(
        batch: int,
        time: int,
        units: int,
        cell: str,
        stack: RecurrentStack,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
    ) -> Leaves:
        generator = torch.Generator().manual_seed(seed)
        gates, sources = gate_factor(cell) * units, units + stack.reading_size
        outputs = stack.action_size + stack.vector
        shapes = [(batch, time, gates), (gates, sources), (outputs, units), (outputs,), (stack.vector,)]
        scales = [1.0, sources**-0.5, 2 * units**-0.5, 1.0, 1.0]
        drawn = [
            scale * torch.randn(shape, generator=generator, dtype=torch.float64)
            for shape, scale in zip(shapes, scales, strict=True)
        ]
        return [tensor.to(dtype).requires_grad_() for tensor in drawn]

    return draw

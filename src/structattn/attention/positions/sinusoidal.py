"""Sinusoidal positions."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

_ROWS_KEPT = 1024


def sinusoidal_positions(first: int, count: int, width: int) -> Float[Tensor, "count width"]:
    """Rows ``first`` to ``first + count - 1`` of the table of Vaswani et al. (2017), section 3.5, in float32.

    P[t, 2i] = sin(t / 10000^(2i / d)), P[t, 2i + 1] = cos(t / 10000^(2i / d)), positions counted from 0; computed in
    float64. Cost: O(count * width).
    """
    time = torch.arange(first, first + count, dtype=torch.float64)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    waves = torch.stack([torch.sin(time * frequency), torch.cos(time * frequency)], dim=-1)
    return waves.flatten(1)[:, :width].float()


class SinusoidalPositions(nn.Module):
    """Sinusoidal positions, the first 1,024 of them kept; later ones are computed when asked for.

    Args:
        width: d.
    """

    table: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("table", sinusoidal_positions(0, _ROWS_KEPT, width), persistent=False)

    def forward(self, first: int, count: int) -> Float[Tensor, "count width"]:
        """Rows ``first`` to ``first + count - 1``, on the device and in the dtype of the module."""
        if first + count <= _ROWS_KEPT:
            return self.table[first : first + count]
        return sinusoidal_positions(first, count, self.table.shape[1]).to(self.table)

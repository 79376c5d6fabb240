"""Learned absolute positions."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LearnedPositions(nn.Module):
    """A learned vector for each position, initialised from N(0, 0.02^2).

    Args:
        d_model: d.
        max_positions: the number of positions; longer sequences raise an error.
    """

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        if max_positions < 1:
            raise ValueError(f"max_positions={max_positions}; expected at least 1 position")
        self.table = nn.Parameter(torch.empty(max_positions, d_model).normal_(std=0.02))

    @property
    def max_positions(self) -> int:
        """The number of positions."""
        return self.table.shape[0]

    def forward(self, first: int, count: int) -> Float[Tensor, "count d_model"]:
        """Return the vectors of positions ``first`` to ``first + count - 1``, counted from 0.

        Raises:
            ValueError: there are fewer positions.
        """
        if first + count > self.max_positions:
            raise ValueError(
                f"the sequence has {first + count} positions; the model has {self.max_positions} learned positions"
            )
        return self.table[first : first + count]

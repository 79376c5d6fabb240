"""Learned positions."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LearnedPositions(nn.Module):
    """A vector for each position, learned like any other parameter and drawn from N(0, 0.02^2) at first.

    Args:
        d_model: d.
        max_positions: how many positions there are; a longer sequence is refused.
    """

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        if max_positions < 1:
            raise ValueError(f"max_positions={max_positions}; expected at least 1 position")
        self.table = nn.Parameter(torch.empty(max_positions, d_model).normal_(std=0.02))

    @property
    def max_positions(self) -> int:
        """How many there are."""
        return self.table.shape[0]

    def forward(self, first: int, count: int) -> Float[Tensor, "count d_model"]:
        """What to add to positions ``first`` to ``first + count - 1``, counted from 0.

        Raises:
            ValueError: there are not so many.
        """
        if first + count > self.max_positions:
            raise ValueError(
                f"a sequence of {first + count} positions; the {self.max_positions} learned ones do not reach so far"
            )
        return self.table[first : first + count]

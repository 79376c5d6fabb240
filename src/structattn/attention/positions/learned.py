"""Learned positions."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class LearnedPositions(nn.Module):
    """A vector for each position, learned like any other parameter and drawn from N(0, 0.02^2) at first.

    Args:
        width: d.
        maximum: how many positions there are; a longer sequence is refused.
    """

    def __init__(self, width: int, maximum: int) -> None:
        super().__init__()
        if maximum < 1:
            raise ValueError(f"maximum={maximum}; expected at least 1 position")
        self.table = nn.Parameter(torch.empty(maximum, width).normal_(std=0.02))

    @property
    def maximum(self) -> int:
        """How many there are."""
        return self.table.shape[0]

    def forward(self, first: int, count: int) -> Float[Tensor, "count width"]:
        """What to add to positions ``first`` to ``first + count - 1``, counted from 0.

        Raises:
            ValueError: there are not so many.
        """
        if first + count > self.maximum:
            raise ValueError(
                f"a sequence of {first + count} positions; the {self.maximum} learned ones do not reach so far"
            )
        return self.table[first : first + count]

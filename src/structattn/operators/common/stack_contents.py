"""The distribution of what lies on a stack after each step."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.support.shapes import Float


@dataclass(frozen=True)
class StackContents:
    """The distribution of the contents of a stack after each step, with B sequences, T steps and D depths.

    The first depth is the top. At each depth, ``positions`` and ``symbols`` each sum to ``at_least``. Zeros past the
    length of a sequence. Those of several stacks of a layer have an axis of these after that of the steps.

    Args:
        height: the expected number of items.
        at_least: the probability that the stack has an item at the depth.
        positions: the probability that the vector of each source lies at the depth. Column 0 belongs to the bottom
            vector, column j to the vector of step j, counted from 1.
        symbols: the probability of each symbol at the depth; None for stacks without symbols.
    """

    height: Float[Tensor, "batch time *stack"]
    at_least: Float[Tensor, "batch time *stack depth"]
    positions: Float[Tensor, "batch time *stack depth source"]
    symbols: Float[Tensor, "batch time *stack depth symbol"] | None = None

    def without_bottom(self) -> "StackContents":
        """Return the contents without the column of a bottom vector: column j of the positions for step j from 0."""
        return replace(self, positions=self.positions[..., 1:])

    def of_stacks(self, count: int) -> "StackContents":
        """Return the contents of ``count`` stacks that were computed as so many sequences after each other."""
        if count == 1:
            return self
        return self._map(lambda each: each.view(len(each) // count, count, *each.shape[1:]).transpose(1, 2))

    def of_stack(self, index: int) -> "StackContents":
        """Return the contents of one of several stacks."""
        return self._map(lambda each: each[:, :, index])

    def _map(self, function: Callable[[Tensor], Tensor]) -> "StackContents":
        return replace(self, **{name: function(each) for name, each in vars(self).items() if each is not None})

    def after(self, num_skipped: int) -> "StackContents":
        """Return the contents where ``num_skipped`` positions without a stack, of zeros, precede the first step."""
        bottom, vectors = self.positions[..., :1], self.positions[..., 1:]
        symbols = self.symbols
        return StackContents(
            F.pad(self.height, (num_skipped, 0)),
            F.pad(self.at_least, (0, 0, num_skipped, 0)),
            F.pad(torch.cat([bottom, F.pad(vectors, (num_skipped, 0))], -1), (0, 0, 0, 0, num_skipped, 0)),
            None if symbols is None else F.pad(symbols, (0, 0, 0, 0, num_skipped, 0)),
        )


def checked_depths(depths: int) -> int:
    """Return the number of depths.

    Raises:
        ValueError: it is less than 1.
    """
    if depths < 1:
        raise ValueError(f"depths={depths}; expected at least 1")
    return depths

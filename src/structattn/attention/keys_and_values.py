"""What the steps of a layer with keys and values need of the positions that they see."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.attention.heads import IntoHeads


@dataclass(frozen=True)
class KeysAndValues:
    """Those of the steps so far."""

    keys: Float[Tensor, "batch heads time size"]
    values: Float[Tensor, "batch heads time size"]

    def select(self, indices: Int[Tensor, " chosen"]) -> "KeysAndValues":
        """The states of some members of the batch, in a new order."""
        return KeysAndValues(self.keys.index_select(0, indices), self.values.index_select(0, indices))

    def and_one_more(self, key: Tensor, value: Tensor) -> "KeysAndValues":
        """The state with those of one more step (B, H, 1, size)."""
        return KeysAndValues(torch.cat([self.keys, key], dim=2), torch.cat([self.values, value], dim=2))


@dataclass(frozen=True)
class MemoryKeysAndValues:
    """Those of a memory, and its lengths."""

    keys: Float[Tensor, "batch heads source size"]
    values: Float[Tensor, "batch heads source size"]
    lengths: Int[Tensor, " batch"] | None

    def select(self, indices: Int[Tensor, " chosen"]) -> "MemoryKeysAndValues":
        """The states of some members of the batch, in a new order."""
        lengths = None if self.lengths is None else self.lengths.index_select(0, indices)
        return MemoryKeysAndValues(self.keys.index_select(0, indices), self.values.index_select(0, indices), lengths)


def no_rows(projection: IntoHeads, batch_size: int) -> Float[Tensor, "batch heads 0 size"]:
    """Keys or values before the first step, on the device and in the dtype of the parameters."""
    return projection.weight.new_zeros(batch_size, projection.heads, 0, projection.size)


def require_causal(causal: bool) -> None:
    """Raise ValueError for a layer that sees later positions, which cannot go step by step."""
    if not causal:
        raise ValueError("a layer with causal=False sees later positions and cannot go step by step")

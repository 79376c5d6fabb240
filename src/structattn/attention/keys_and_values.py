"""What the steps of a layer with keys and values need of the positions that they see."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.attention.heads import IntoHeads


@dataclass(frozen=True)
class KeysAndValues:
    """Those of the steps so far.

    Args:
        keys: k of each step.
        values: v of each step.
        rows: the members of the batch that are meant, in their order; None: all. They are copied out with the next
            step, once, where a search that chooses among its hypotheses at every step would copy all twice.
    """

    keys: Float[Tensor, "stored heads time size"]
    values: Float[Tensor, "stored heads time size"]
    rows: Int[Tensor, " batch"] | None = None

    def select(self, indices: Int[Tensor, " chosen"]) -> "KeysAndValues":
        """The states of some members of the batch, in a new order."""
        return replace(self, rows=indices if self.rows is None else self.rows.index_select(0, indices))

    def and_one_more(self, key: Tensor, value: Tensor) -> "KeysAndValues":
        """The state with those of one more step (B, H, 1, size)."""
        return KeysAndValues(_joined(self.keys, self.rows, key), _joined(self.values, self.rows, value))


def _joined(past: Tensor, rows: Tensor | None, new: Tensor) -> Float[Tensor, "batch heads time size"]:
    if rows is None:
        return torch.cat([past, new], dim=2)
    if torch.is_grad_enabled() and past.requires_grad:
        return torch.cat([past.index_select(0, rows), new], dim=2)
    (_, heads, time, size), dtype = past.shape, torch.promote_types(past.dtype, new.dtype)
    joined = torch.empty(len(rows), heads, time + 1, size, dtype=dtype, device=new.device)
    torch.index_select(past.to(dtype), 0, rows, out=joined[:, :, :time])
    joined[:, :, time:] = new
    return joined


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

"""Which query may see which key."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from structattn.operators.common.checks import checked_two_lengths, inside


class Visibility(NamedTuple):
    """What hides keys from queries.

    Args:
        lengths: the number of queries of each sequence; all T where None.
        memory_lengths: the number of keys; all S where None. Both are given or neither, and one object where one tensor
            serves for both.
        causal: query t sees keys 0 to t only.
        mask: booleans, true where a key is seen, or a bias of the scores, -inf where it is not; broadcasts to
            (B, H, T, S).
    """

    lengths: Int[Tensor, " batch"] | None
    memory_lengths: Int[Tensor, " batch"] | None
    causal: bool
    mask: Tensor | None

    @property
    def bias(self) -> Tensor | None:
        """The mask, if it is more than true and false."""
        return None if self.mask is None or self.mask.dtype == torch.bool else self.mask

    def pairs(self, queries: int, like: Tensor) -> Bool[Tensor, "#batch #heads queries keys"]:
        """Which query may see which of ``like``'s keys (B, H, S, D): neither is past its end, nor is it hidden."""
        keys = like.shape[2]
        allowed = torch.ones(1, 1, queries, keys, dtype=torch.bool, device=like.device)
        if self.causal:
            allowed = allowed.tril()
        if self.lengths is not None:
            allowed = allowed & inside(self.lengths, queries)[:, None, :, None]
        if self.memory_lengths is not None:
            allowed = allowed & inside(self.memory_lengths, keys)[:, None, None, :]
        if self.mask is not None:
            allowed = allowed & (self.mask if self.bias is None else self.mask != -torch.inf)
        return allowed


def visibility(
    query: Tensor,
    key: Tensor,
    lengths: Tensor | None,
    memory_lengths: Tensor | None,
    causal: bool,
    mask: Tensor | None,
) -> Visibility:
    """Checks the lengths; ``lengths`` alone holds for queries and keys alike."""
    if lengths is None and memory_lengths is None:
        return Visibility(None, None, causal, mask)
    batch, _, queries, _ = query.shape
    ends = checked_two_lengths(lengths, memory_lengths, batch, queries, key.shape[2], query.device)
    return Visibility(ends[0], ends[0] if memory_lengths is None else ends[1], causal, mask)


def without_end(tensor: Tensor, lengths: Tensor | None) -> Tensor:
    """``tensor`` (B, H, T, D) with zeros past the length, whose gradient is zero whatever comes back."""
    return tensor if lengths is None else torch.where(inside(lengths, tensor.shape[2])[:, None, :, None], tensor, 0)

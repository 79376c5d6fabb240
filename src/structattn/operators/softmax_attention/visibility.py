"""Attention masks: which keys are visible to which query."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from structattn.operators.common.checks import checked_two_lengths, inside


class Visibility(NamedTuple):
    """Lengths, causality and mask of a call.

    Args:
        lengths: the number of queries of each sequence; all T where None.
        memory_lengths: the number of keys; all S where None. Both are given or neither; the same object if one tensor
            serves for both.
        causal: query t attends to keys 0 to t only.
        mask: booleans, true where a key is visible, or a bias of the scores, -inf where it is hidden; broadcasts to
            (B, H, T, S).
    """

    lengths: Int[Tensor, " batch"] | None
    memory_lengths: Int[Tensor, " batch"] | None
    causal: bool
    mask: Tensor | None

    @property
    def bias(self) -> Tensor | None:
        """The mask if it is a bias, None if it is boolean."""
        return None if self.mask is None or self.mask.dtype == torch.bool else self.mask

    def pairs(self, queries: int, like: Tensor) -> Bool[Tensor, "#batch #heads queries keys"]:
        """Return the mask of visible pairs of queries and keys; ``like`` has the shape (B, H, S, D) of the keys."""
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
    """Check the lengths; ``lengths`` alone holds for queries and keys."""
    if lengths is None and memory_lengths is None:
        return Visibility(None, None, causal, mask)
    batch, _, queries, _ = query.shape
    ends = checked_two_lengths(lengths, memory_lengths, batch, queries, key.shape[2], query.device)
    return Visibility(ends[0], ends[0] if memory_lengths is None else ends[1], causal, mask)


def without_end(tensor: Tensor, lengths: Tensor | None) -> Tensor:
    """Return ``tensor`` (B, H, T, D) with zeros, and zero gradients, past the length."""
    return tensor if lengths is None else torch.where(inside(lengths, tensor.shape[2])[:, None, :, None], tensor, 0)

"""Cache of what cross-attention computes once from its memory: keys, values and similar tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.attention.key_value_cache import gather_rows


@dataclass(frozen=True)
class CrossAttentionCache:
    """Keys, values and similar tensors of each member's memory: an immutable value.

    All hypotheses of a sentence attend to the same memory, so each memory is stored once and a cache holds row indices.

    Args:
        rows: keys, values, ... of all memories.
        row_indices: the row of each memory position; those of one member are consecutive.
        lengths: of the memories; None: no padding.
    """

    rows: tuple[Float[Tensor, "stored heads size"], ...]
    row_indices: Int[Tensor, "batch source"]
    lengths: Int[Tensor, " batch"] | None

    @staticmethod
    def from_tensors(
        tensors: Sequence[Float[Tensor, "batch heads source size"]], lengths: Int[Tensor, " batch"] | None = None
    ) -> "CrossAttentionCache":
        """Return a cache that holds these tensors."""
        batch, _, source, _ = tensors[0].shape
        indices = torch.arange(batch * source, device=tensors[0].device).view(batch, source)
        cache = CrossAttentionCache(tuple(part.transpose(1, 2).flatten(0, 1) for part in tensors), indices, lengths)
        if not torch.compiler.is_compiling():
            cache._remember(tuple(tensors))
        return cache

    def __reduce__(self) -> tuple[Any, ...]:
        return CrossAttentionCache.from_tensors, (self.tensors, self.lengths)  # copies hold their own rows only

    @property
    def tensors(self) -> tuple[Float[Tensor, "batch heads source size"], ...]:
        """Keys, values, ... as contiguous batches. Kernels that take indices read ``rows`` instead.

        The copy is made once and kept, unless it carries gradients or was made in inference mode.
        """
        if torch.compiler.is_compiling():
            return gather_rows(self.rows, self.row_indices)
        gathered: tuple[Tensor, ...] | None = vars(self).get("_gathered")
        if gathered is None:
            gathered = gather_rows(self.rows, self.row_indices)
            inference_only = gathered[0].is_inference() and not self.rows[0].is_inference()
            if not inference_only and not any(part.requires_grad for part in self.rows):
                self._remember(gathered)
        return gathered

    def select(self, indices: Int[Tensor, " chosen"]) -> "CrossAttentionCache":
        """Return the caches of some members of the batch, in the given order; ``self`` if no memory changes its place.

        Once at most half of the stored memories are in use, the others are dropped.
        """
        row_indices = self.row_indices.index_select(0, indices)
        if torch.equal(row_indices, self.row_indices):
            return self
        lengths = None if self.lengths is None else self.lengths.index_select(0, indices)
        source = row_indices.shape[1]
        used, memory = torch.unique(row_indices[:, :1], return_inverse=True)
        if 2 * len(used) * source > len(self.rows[0]):
            return CrossAttentionCache(self.rows, row_indices, lengths)
        position = torch.arange(source, device=row_indices.device)
        kept = (used[:, None] + position).flatten()
        rows = tuple(part.index_select(0, kept) for part in self.rows)
        return CrossAttentionCache(rows, memory * source + position, lengths)

    def _remember(self, tensors: tuple[Tensor, ...]) -> None:
        vars(self)["_gathered"] = tensors  # not a field: equality and repr do not depend on it

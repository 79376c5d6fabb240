"""What a layer needs of a memory: keys, values and whatever else, which stand once for all who read the same memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.attention.key_value_cache import copied


@dataclass(frozen=True)
class StoredMemory:
    """Rows of each member of a batch, one for each position of its memory: a value, never mutated.

    All hypotheses of a sentence read the same memory, so its rows stand once and a state says which are its own.

    Args:
        rows: of each part, those of all memories.
        slots: which are meant; each member's stand together.
        lengths: how many of them count; None: all.
    """

    rows: tuple[Float[Tensor, "stored heads size"], ...]
    slots: Int[Tensor, "batch source"]
    lengths: Int[Tensor, " batch"] | None

    @staticmethod
    def of(
        parts: Sequence[Float[Tensor, "batch heads source size"]], lengths: Int[Tensor, " batch"] | None = None
    ) -> "StoredMemory":
        """The state whose ``parts`` these are."""
        batch, _, source, _ = parts[0].shape
        slots = torch.arange(batch * source, device=parts[0].device).view(batch, source)
        state = StoredMemory(tuple(part.transpose(1, 2).flatten(0, 1) for part in parts), slots, lengths)
        if not torch.compiler.is_compiling():
            state._keep(tuple(parts))
        return state

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredMemory.of, (self.parts, self.lengths)  # its own rows alone are copied or pickled

    @property
    def parts(self) -> tuple[Float[Tensor, "batch heads source size"], ...]:
        """The rows that are meant, of each part, for whatever cannot read them where they stand.

        They are copied out once, as far as the copies are as good for later callers: with gradients, and under
        inference mode, they may not be.
        """
        if torch.compiler.is_compiling():
            return copied(self.rows, self.slots)
        kept: tuple[Tensor, ...] | None = vars(self).get("_parts")
        if kept is None:
            kept = copied(self.rows, self.slots)
            for_inference = kept[0].is_inference() and not self.rows[0].is_inference()
            if not for_inference and not any(part.requires_grad for part in self.rows):
                self._keep(kept)
        return kept

    def select(self, indices: Int[Tensor, " chosen"]) -> "StoredMemory":
        """The states of some members of the batch, in a new order; itself where each place keeps its memory.

        Memories that nobody reads any more are given up once they are half of all, so that what is copied for it is
        less than what was there.
        """
        slots = self.slots.index_select(0, indices)
        if torch.equal(slots, self.slots):
            return self
        lengths = None if self.lengths is None else self.lengths.index_select(0, indices)
        source = slots.shape[1]
        needed, places = torch.unique(slots[:, :1], return_inverse=True)
        if 2 * len(needed) * source > len(self.rows[0]):
            return StoredMemory(self.rows, slots, lengths)
        position = torch.arange(source, device=slots.device)
        rows = (needed[:, None] + position).flatten()
        return StoredMemory(
            tuple(part.index_select(0, rows) for part in self.rows), places * source + position, lengths
        )

    def _keep(self, parts: tuple[Tensor, ...]) -> None:
        vars(self)["_parts"] = parts  # no field: what a state means does not depend on it

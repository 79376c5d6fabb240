"""The state of a fused decoder."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Int
from torch import Tensor

from structattn.attention.cache import KeyValueCache
from structattn.decoding.candidates import Restriction
from structattn.operators.decoder_layers import Memory


@dataclass(frozen=True)
class FusedState:
    """The number of positions so far, their keys and values in all layers, and the memory: an immutable value.

    Args:
        position: the number of positions.
        cache: one tensor with keys and values, or values alone, of each self-attention in the kernel; None without any.
        memory_rows: keys, if any, and values of each cross-attention in the kernel.
        memory: which of their rows belong to each member of the batch.
        modules: the states of the sublayers that are not in the kernel; None for those without a state.
        restriction: to candidates; None: to none.
    """

    position: int
    cache: KeyValueCache | None
    memory_rows: tuple[tuple[Tensor, ...], ...]
    memory: Memory
    modules: tuple[Any, ...] = ()
    restriction: Restriction | None = None

    def select(self, indices: Int[Tensor, " selected"]) -> "FusedState":
        """Return the states of some members of the batch, in a new order."""
        lengths = None if self.memory.lengths is None else self.memory.lengths.index_select(0, indices)
        memory = Memory(self.memory.first.index_select(0, indices), self.memory.size, lengths)
        cache = None if self.cache is None else self.cache.select(indices)
        modules = tuple(None if state is None else state.select(indices) for state in self.modules)
        restriction = None if self.restriction is None else self.restriction.select(indices)
        return FusedState(self.position, cache, self.memory_rows, memory, modules, restriction)

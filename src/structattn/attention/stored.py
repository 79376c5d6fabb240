"""Rows that later steps read: keys, values and whatever else the steps so far, or a memory, have left for them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.attention.heads import IntoHeads


class _Shelf:
    """Rows that states share. What is written is never changed; further rows go behind all others, if there is room.

    Args:
        parts: of each thing that is kept, (room, H, size).
        used: how many rows are written.
    """

    def __init__(self, parts: tuple[Tensor, ...], used: int) -> None:
        self.parts = parts
        self._end = [used]  # empty while someone writes: taking an item out of a list is one step, whoever else runs

    def take(self, end: int, rows: Sequence[Tensor]) -> bool:
        """Write rows from ``end`` on, unless there is no room, or other rows stand there."""
        made_to_stay = self.parts[0].is_inference() and not torch.is_inference_mode_enabled()
        if made_to_stay or end + len(rows[0]) > len(self.parts[0]):
            return False
        try:
            self._end.remove(end)
        except ValueError:
            return False
        for part, row in zip(self.parts, rows, strict=True):
            part[end : end + len(row)] = row
        self._end.append(end + len(rows[0]))
        return True


@dataclass(frozen=True)
class Stored:
    """Some rows of each member of a batch, in order: a value, never mutated.

    A beam search chooses among its hypotheses at every step, and those of one sentence have most of their past, and all
    of their memory, in common. So the rows stand once, where they were written, and a state says which are its own:
    neither to choose nor to add a step copies what was there before. Rows that nobody needs any more are left out when
    the room is used up and all move.

    Args:
        shelf: where the rows stand.
        end: how many stood there when this was made.
        slots: which are meant.
        lengths: how many of them count, in a memory; None: all.
    """

    shelf: _Shelf
    end: int
    slots: Int[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"] | None = None

    @staticmethod
    def nothing(batch_size: int, projection: IntoHeads, *heads: int) -> "Stored":
        """Before the first step, for a part with each of these numbers of heads, and what size the projection gives."""
        weight = projection.weight
        parts = tuple(weight.new_zeros(0, count, projection.size) for count in heads)
        slots = torch.zeros(batch_size, 0, dtype=torch.int64, device=weight.device)
        return Stored(_Shelf(parts, 0), 0, slots)

    @staticmethod
    def of(parts: Sequence[Float[Tensor, "batch heads time size"]], lengths: Tensor | None = None) -> "Stored":
        """What is kept of a memory, or what ``parts`` of another state gave."""
        batch, _, time, _ = parts[0].shape
        slots = torch.arange(batch * time, device=parts[0].device).view(batch, time)
        shelf = _Shelf(tuple(part.transpose(1, 2).flatten(0, 1) for part in parts), batch * time)
        stored = Stored(shelf, batch * time, slots, lengths)
        vars(stored)["parts"] = tuple(parts)  # they are here already, and need not be copied out
        return stored

    def last(self, count: int) -> "Stored":
        """The state with its last few rows only."""
        return replace(self, slots=self.slots[:, max(0, self.time - count) :])

    @property
    def dtype(self) -> torch.dtype:
        """Of all parts."""
        return self.shelf.parts[0].dtype

    @property
    def time(self) -> int:
        """How many rows each member has, those past its length counted."""
        return self.slots.shape[1]

    @cached_property
    def parts(self) -> tuple[Float[Tensor, "batch heads time size"], ...]:
        """The rows that are meant, of each part, copied out once, for whatever cannot read them where they stand."""
        batch, time = self.slots.shape
        copies = (part.index_select(0, self.slots.flatten()) for part in self.shelf.parts)
        return tuple(copy.view(batch, time, *copy.shape[1:]).transpose(1, 2) for copy in copies)

    def select(self, indices: Int[Tensor, " chosen"]) -> "Stored":
        """The states of some members of the batch, in a new order."""
        lengths = None if self.lengths is None else self.lengths.index_select(0, indices)
        return replace(self, slots=self.slots.index_select(0, indices), lengths=lengths)

    def and_one_more(self, *parts: Float[Tensor, "batch heads 1 size"]) -> "Stored":
        """The state with the rows of one more step."""
        if torch.compiler.is_compiling() or any(part.requires_grad for part in parts):  # nothing is written in place
            past_and_new = zip(self.parts, parts, strict=True)
            joined = [torch.cat([part.transpose(1, 2) for part in pair], dim=1) for pair in past_and_new]
            return Stored.of([part.transpose(1, 2) for part in joined], self.lengths)
        rows = [part[:, :, 0] for part in parts]
        shelf, end, slots = self.shelf, self.end, self.slots
        if not shelf.take(end, rows):
            shelf, end, slots = self._moved(rows)
        new = torch.arange(end, end + len(rows[0]), device=slots.device)
        return Stored(shelf, end + len(rows[0]), torch.cat([slots, new[:, None]], dim=1))

    def _moved(self, rows: list[Tensor]) -> tuple[_Shelf, int, Tensor]:
        """A shelf with those rows alone that are needed, then the new ones; and where the first and the new ones are.

        There is room for as many again, so that all that is ever moved is about as much as what is written.
        """
        needed, slots = torch.unique(self.slots, return_inverse=True)
        count = len(rows[0])
        room = len(needed) + 8 * count
        parts = tuple(
            torch.cat([part.index_select(0, needed), row, row.new_empty(room, *row.shape[1:])])
            for part, row in zip(self.shelf.parts, rows, strict=True)
        )
        return _Shelf(parts, len(needed) + count), len(needed), slots


def require_causal(causal: bool) -> None:
    """Raise ValueError for a layer that sees later positions, which cannot go step by step."""
    if not causal:
        raise ValueError("a layer with causal=False sees later positions and cannot go step by step")

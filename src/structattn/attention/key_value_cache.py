"""What a layer's steps so far have left for later ones: keys, values and whatever else, in rows that states share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.attention.heads import IntoHeads

_SPARE_STEPS = 8  # room for at least as many, so that the first steps need not all move


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
        """Write rows from ``end`` on, unless there is no room, other rows stand there, or they would lose digits."""
        made_to_stay = self.parts[0].is_inference() and not torch.is_inference_mode_enabled()
        if made_to_stay or end + len(rows[0]) > len(self.parts[0]):
            return False
        if any(torch.promote_types(p.dtype, row.dtype) != p.dtype for p, row in zip(self.parts, rows, strict=True)):
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
class StoredPast:
    """Rows of each member of a batch, one for each step: a value, never mutated.

    A beam search chooses among its hypotheses at every step, and those of one sentence have most of their past in
    common. So rows stand once, where they were written, and a state says which are its own: neither to choose nor to
    add a step copies what was there before. Now and then the rows that a state needs move, and others are left behind.

    Args:
        shelf: where the rows stand.
        end: how many stood there when this was made.
        slots: which are meant.
        whole: the same rows as ``parts`` gives them, where they are at hand.
    """

    shelf: _Shelf
    end: int
    slots: Int[Tensor, "batch time"]
    whole: tuple[Float[Tensor, "batch heads time size"], ...] | None = None

    lengths = None  # all rows count, other than in a memory

    @staticmethod
    def nothing(batch_size: int, projection: IntoHeads, *num_heads: int) -> "StoredPast":
        """Before the first step, for a part with each of these numbers of heads, and what size the projection gives."""
        weight = projection.weight
        parts = tuple(weight.new_zeros(0, count, projection.size) for count in num_heads)
        return StoredPast(_Shelf(parts, 0), 0, torch.zeros(batch_size, 0, dtype=torch.int64, device=weight.device))

    @staticmethod
    def of(parts: Sequence[Float[Tensor, "batch heads time size"]]) -> "StoredPast":
        """The state whose ``parts`` these are."""
        batch, _, time, _ = parts[0].shape
        slots = torch.arange(batch * time, device=parts[0].device).view(batch, time)
        shelf = _Shelf(tuple(part.transpose(1, 2).flatten(0, 1) for part in parts), batch * time)
        return StoredPast(shelf, batch * time, slots, tuple(parts))

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredPast.of, (self.parts,)  # its own rows alone are copied or pickled

    @property
    def rows(self) -> tuple[Float[Tensor, "room heads size"], ...]:
        """What ``slots`` are numbers in, of each part."""
        return self.shelf.parts

    @property
    def parts(self) -> tuple[Float[Tensor, "batch heads time size"], ...]:
        """The rows that are meant, of each part, for whatever cannot read them where they stand: copies, mostly."""
        return copied(self.rows, self.slots) if self.whole is None else self.whole

    @property
    def time(self) -> int:
        """How many rows each member has."""
        return self.slots.shape[1]

    def last(self, count: int) -> "StoredPast":
        """The state with its last few rows only."""
        return replace(self, slots=self.slots[:, max(0, self.time - count) :], whole=None)

    def select(self, indices: Int[Tensor, " chosen"]) -> "StoredPast":
        """The states of some members of the batch, in a new order."""
        return replace(self, slots=self.slots.index_select(0, indices), whole=None)

    def and_one_more(self, *parts: Float[Tensor, "batch heads 1 size"]) -> "StoredPast":
        """The state with the rows of one more step."""
        gradients_flow = torch.is_grad_enabled() and any(part.requires_grad for part in (*parts, *self.rows))
        if gradients_flow or torch.compiler.is_compiling():  # then nothing may be written in place
            return StoredPast.of([_joined(past, new) for past, new in zip(self.parts, parts, strict=True)])
        new = [part[:, :, 0] for part in parts]
        shelf, end, slots, count = self.shelf, self.end, self.slots, len(new[0])
        most_if_moved = 2 * slots.numel() + (_SPARE_STEPS + 1) * count
        mostly_of_others = len(self.rows[0]) > 2 * most_if_moved
        if mostly_of_others or not shelf.take(end, new):
            shelf, end, slots = self._moved(new)
        numbers = torch.arange(end, end + count, device=slots.device)
        return StoredPast(shelf, end + count, torch.cat([slots, numbers[:, None]], dim=1))

    def _moved(self, new: list[Tensor]) -> tuple[_Shelf, int, Tensor]:
        """A shelf with the rows alone that are needed, then the new ones; and where the first and the new ones are.

        There is room for as many again, so that all that is ever moved is about as much as what is written.
        """
        needed, slots = torch.unique(self.slots, return_inverse=True)
        end = len(needed)
        pairs = zip(self.rows, new, strict=True)
        return _Shelf(tuple(_with_room(part, needed, row) for part, row in pairs), end + len(new[0])), end, slots


def copied(
    rows: Sequence[Float[Tensor, "room heads size"]], slots: Int[Tensor, "batch time"]
) -> tuple[Float[Tensor, "batch heads time size"], ...]:
    """The rows of each part that have these numbers."""
    copies = (part.index_select(0, slots.flatten()) for part in rows)
    return tuple(copy.view(*slots.shape, *copy.shape[1:]).transpose(1, 2) for copy in copies)


def require_causal(causal: bool) -> None:
    """Raise ValueError for a layer that sees later positions, which cannot go step by step."""
    if not causal:
        raise ValueError("a layer with causal=False sees later positions and cannot go step by step")


def _joined(past: Tensor, new: Tensor) -> Float[Tensor, "batch heads time size"]:
    """As one tensor, laid out so that its rows can be numbered without another copy."""
    return torch.cat([past.transpose(1, 2), new.transpose(1, 2)], dim=1).transpose(1, 2)


def _with_room(part: Tensor, needed: Tensor, new: Tensor) -> Float[Tensor, "room heads size"]:
    """Some rows and the new ones, and unwritten room that costs no memory before it is used."""
    dtype, end = torch.promote_types(part.dtype, new.dtype), len(needed) + len(new)
    rows = torch.empty(end + len(needed) + _SPARE_STEPS * len(new), *part.shape[1:], dtype=dtype, device=part.device)
    torch.index_select(part.to(dtype), 0, needed, out=rows[: len(needed)])
    rows[len(needed) : end] = new
    return rows

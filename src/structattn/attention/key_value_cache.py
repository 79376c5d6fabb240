"""Key/value cache of self-attention, shared by the hypotheses of a beam."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.attention.projections import InputProjection

_MIN_SPARE_STEPS = 8  # free capacity of a new pool, so that the first steps do not all reallocate


class _Pool:
    """Append-only storage that several caches share.

    Written rows never change. A cache may append only if its own rows end where the pool ends; otherwise another cache
    has written there.

    Args:
        tensors: one for keys, one for values, ..., each (capacity, H, size).
        num_rows: the number of rows in use.
    """

    def __init__(self, tensors: tuple[Tensor, ...], num_rows: int) -> None:
        self.tensors = tensors
        self._end = [num_rows]  # empty during a write: removing a list item is atomic, so threads need no lock

    def try_append(self, end: int, rows: Sequence[Tensor]) -> bool:
        """Write rows from row ``end`` on and return True, or False where that row is taken, too far or too narrow."""
        frozen = self.tensors[0].is_inference() and not torch.is_inference_mode_enabled()
        if frozen or end + len(rows[0]) > len(self.tensors[0]):
            return False
        pairs = list(zip(self.tensors, rows, strict=True))
        if any(torch.promote_types(tensor.dtype, new.dtype) != tensor.dtype for tensor, new in pairs):
            return False
        try:
            self._end.remove(end)
        except ValueError:
            return False
        for tensor, new in pairs:
            tensor[end : end + len(new)] = new
        self._end.append(end + len(rows[0]))
        return True


@dataclass(frozen=True)
class KeyValueCache:
    """Keys, values and similar tensors of the positions so far: an immutable value.

    The hypotheses of a beam share most of their past, so each row is stored once, in a pool, and a cache holds the
    indices of its rows. Neither ``select`` nor ``append`` copies earlier rows. Once most of a pool belongs to abandoned
    hypotheses, the rows still in use move to a new one, which costs amortised constant time per row.

    Args:
        pool: the storage.
        end: the number of rows in the pool when this cache was made.
        row_indices: the row of each position in the pool.
        gathered: what ``tensors`` returns, if already known.
    """

    pool: _Pool
    end: int
    row_indices: Int[Tensor, "batch time"]
    gathered: tuple[Float[Tensor, "batch heads time size"], ...] | None = None

    lengths = None  # all rows count, unlike those of a padded memory

    @staticmethod
    def empty(batch_size: int, projection: InputProjection, *heads: int) -> "KeyValueCache":
        """Return a cache without positions, with one tensor per entry of ``heads``, its number of heads."""
        weight = projection.weight
        tensors = tuple(weight.new_zeros(0, count, projection.size) for count in heads)
        indices = torch.zeros(batch_size, 0, dtype=torch.int64, device=weight.device)
        return KeyValueCache(_Pool(tensors, 0), 0, indices)

    @staticmethod
    def from_tensors(tensors: Sequence[Float[Tensor, "batch heads time size"]]) -> "KeyValueCache":
        """Return a cache that holds these tensors."""
        batch, _, time, _ = tensors[0].shape
        indices = torch.arange(batch * time, device=tensors[0].device).view(batch, time)
        pool = _Pool(tuple(tensor.transpose(1, 2).flatten(0, 1) for tensor in tensors), batch * time)
        return KeyValueCache(pool, batch * time, indices, tuple(tensors))

    def __reduce__(self) -> tuple[Any, ...]:
        return KeyValueCache.from_tensors, (self.tensors,)  # copies and pickles hold their own rows only

    @property
    def rows(self) -> tuple[Float[Tensor, "capacity heads size"], ...]:
        """The pool's tensors, which ``row_indices`` index."""
        return self.pool.tensors

    @property
    def tensors(self) -> tuple[Float[Tensor, "batch heads time size"], ...]:
        """Keys, values, ... as contiguous batches: usually a copy. Kernels that take indices read ``rows`` instead."""
        return gather_rows(self.rows, self.row_indices) if self.gathered is None else self.gathered

    @property
    def num_steps(self) -> int:
        """The number of cached positions."""
        return self.row_indices.shape[1]

    def last(self, count: int) -> "KeyValueCache":
        """Return a cache with only the last ``count`` positions."""
        return replace(self, row_indices=self.row_indices[:, max(0, self.num_steps - count) :], gathered=None)

    def select(self, indices: Int[Tensor, " chosen"]) -> "KeyValueCache":
        """Return the caches of some members of the batch, in the given order."""
        return replace(self, row_indices=self.row_indices.index_select(0, indices), gathered=None)

    def append(self, *tensors: Float[Tensor, "batch heads 1 size"]) -> "KeyValueCache":
        """Return a cache with one more position."""
        needs_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*tensors, *self.rows))
        if needs_grad or torch.compiler.is_compiling():  # in-place writes are not allowed
            pairs = zip(self.tensors, tensors, strict=True)
            return KeyValueCache.from_tensors([_concatenated(past, new) for past, new in pairs])
        new = [tensor[:, :, 0] for tensor in tensors]
        pool, end, indices, count = self.pool, self.end, self.row_indices, len(new[0])
        max_if_moved = 2 * indices.numel() + (_MIN_SPARE_STEPS + 1) * count
        mostly_unused = len(self.rows[0]) > 2 * max_if_moved
        if mostly_unused or not pool.try_append(end, new):
            pool, end, indices = self._moved(new)
        new_indices = torch.arange(end, end + count, device=indices.device)
        return KeyValueCache(pool, end + count, torch.cat([indices, new_indices[:, None]], dim=1))

    def _moved(self, new: list[Tensor]) -> tuple[_Pool, int, Tensor]:
        """A pool of the rows in use and the new ones; the first new row; the indices of the old ones.

        Its capacity is about twice its contents, so that moves cost no more in total than the writes.
        """
        used, indices = torch.unique(self.row_indices, return_inverse=True)
        end = len(used)
        pairs = zip(self.rows, new, strict=True)
        return _Pool(tuple(_with_capacity(tensor, used, row) for tensor, row in pairs), end + len(new[0])), end, indices


def gather_rows(
    rows: Sequence[Float[Tensor, "capacity heads size"]], row_indices: Int[Tensor, "batch time"]
) -> tuple[Float[Tensor, "batch heads time size"], ...]:
    """Copy the rows with these indices out of each tensor."""
    copies = (tensor.index_select(0, row_indices.flatten()) for tensor in rows)
    return tuple(copy.view(*row_indices.shape, *copy.shape[1:]).transpose(1, 2) for copy in copies)


def require_causal(causal: bool) -> None:
    """Raise ValueError for a bidirectional layer, which has no incremental steps."""
    if not causal:
        raise ValueError("a layer with causal=False attends to later positions and cannot go step by step")


def _concatenated(past: Tensor, new: Tensor) -> Float[Tensor, "batch heads time size"]:
    """Past and new positions, with the memory layout in which ``from_tensors`` flattens without a copy."""
    return torch.cat([past.transpose(1, 2), new.transpose(1, 2)], dim=1).transpose(1, 2)


def _with_capacity(tensor: Tensor, used: Tensor, new: Tensor) -> Float[Tensor, "capacity heads size"]:
    """The used rows, then the new ones, then unwritten capacity (which takes no physical memory before its use)."""
    dtype, end = torch.promote_types(tensor.dtype, new.dtype), len(used) + len(new)
    capacity = end + len(used) + _MIN_SPARE_STEPS * len(new)
    rows = torch.empty(capacity, *tensor.shape[1:], dtype=dtype, device=tensor.device)
    torch.index_select(tensor.to(dtype), 0, used, out=rows[: len(used)])
    rows[len(used) : end] = new
    return rows

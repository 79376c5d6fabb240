"""Key/value caches of self- and cross-attention, shared by the hypotheses of a beam, and attention to them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from structattn.attention.positions.biases import ScorePositions
from structattn.attention.projections import apply_positions
from structattn.operators import softmax_attention
from structattn.operators.common.checks import integer_lengths, wrong_batch
from structattn.operators.common.differentiation import transforms_active
from structattn.operators.common.kernels import can_index_rows
from structattn.operators.softmax_attention.cpu import softmax_attention_indexed
from structattn.support.shapes import Float, Int, Lengths

# Free capacity of a new pool, so that the first steps do not all reallocate: that of 8 steps, and on a CPU, where it
# takes addresses but no memory, of up to 64 in 64 MiB.
_MIN_SPARE_STEPS, _MAX_SPARE_STEPS, _MAX_SPARE_BYTES = 8, 64, 64 * 2**20


@dataclass(frozen=True, eq=False)
class _Pool:
    """Append-only storage that several caches share.

    Written rows never change. A cache may append only if its own rows end where the pool ends; otherwise another cache
    has written there.

    Args:
        tensors: one for keys, one for values, ..., each (capacity, H, size).
        end: the number of rows in use, as the only item of a list. The list is empty during a change: removing an item
            is atomic, so threads need no lock.
    """

    tensors: tuple[Tensor, ...]
    end: list[int]

    def try_reserve(self, end: int, count: int, dtypes: Sequence[torch.dtype]) -> bool:
        """Reserve rows from row ``end`` on and return True, or False where that row is taken, too far or too narrow."""
        frozen = self.tensors[0].is_inference() and not torch.is_inference_mode_enabled()
        if frozen or end + count > len(self.tensors[0]):
            return False
        pairs = zip(self.tensors, dtypes, strict=True)
        if any(torch.promote_types(tensor.dtype, dtype) != tensor.dtype for tensor, dtype in pairs):
            return False
        try:
            self.end.remove(end)
        except ValueError:
            return False
        self.end.append(end + count)
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
    def empty(batch_size: int, sizes: Sequence[tuple[int, int]], like: Tensor) -> "KeyValueCache":
        """Return a cache without positions, with one tensor per entry of ``sizes``.

        Args:
            batch_size: the number of members.
            sizes: the number of heads and the size of a head of each tensor.
            like: a tensor of the same dtype and device.
        """
        indices = torch.zeros(batch_size, 0, dtype=torch.int64, device=like.device)
        return KeyValueCache(_Pool(tuple(like.new_zeros(0, *size) for size in sizes), [0]), 0, indices)

    @staticmethod
    def from_tensors(tensors: Sequence[Float[Tensor, "batch heads time size"]]) -> "KeyValueCache":
        """Return a cache that holds these tensors."""
        batch, _, time, _ = tensors[0].shape
        indices = torch.arange(batch * time, device=tensors[0].device).view(batch, time)
        pool = _Pool(tuple(tensor.transpose(1, 2).flatten(0, 1) for tensor in tensors), [batch * time])
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
        """Return a cache with one more position.

        Raises:
            ValueError: the tensors have another batch size, which would take rows of other caches.
        """
        if len(tensors[0]) != len(self.row_indices):
            raise wrong_batch(tensors[0], self.row_indices)
        needs_grad = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*tensors, *self.rows))
        if needs_grad or torch.compiler.is_compiling() or transforms_active():  # in-place writes are not allowed
            pairs = zip(self.tensors, tensors, strict=True)
            return KeyValueCache.from_tensors([_concatenated(past, new) for past, new in pairs])
        extended = self.extend([tensor.dtype for tensor in tensors])
        for rows, new in zip(extended.rows, tensors, strict=True):
            rows[extended.end - len(new) : extended.end] = new[:, :, 0]
        return extended

    def extend(self, dtypes: Sequence[torch.dtype] | None = None) -> "KeyValueCache":
        """Return a cache with one more position, whose rows are not written yet: the last column of ``row_indices``.

        They are consecutive. ``dtypes`` are those of the new rows; None: those of the cache.
        """
        dtypes = [tensor.dtype for tensor in self.rows] if dtypes is None else dtypes
        pool, end, indices, count = self.pool, self.end, self.row_indices, len(self.row_indices)
        mostly_unused = len(self.rows[0]) > 2 * self._capacity(indices.numel(), count)
        if mostly_unused or not pool.try_reserve(end, count, dtypes):
            pool, end, indices = self._moved(count, dtypes)
        new_indices = torch.arange(end, end + count, device=indices.device)
        return KeyValueCache(pool, end + count, torch.cat([indices, new_indices[:, None]], dim=1))

    def _moved(self, count: int, dtypes: Sequence[torch.dtype]) -> tuple[_Pool, int, Tensor]:
        """A pool of the rows in use, with ``count`` more reserved; the first of these; the indices of the old ones.

        Its capacity is at least twice its contents, so that moves cost no more in total than the writes.
        """
        used, indices = torch.unique(self.row_indices, return_inverse=True)
        end = len(used)
        capacity, tensors = self._capacity(end, count), []
        for tensor, other in zip(self.rows, dtypes, strict=True):
            dtype = torch.promote_types(tensor.dtype, other)
            rows = torch.empty(capacity, *tensor.shape[1:], dtype=dtype, device=tensor.device)
            torch.index_select(tensor.to(dtype), 0, used, out=rows[:end])
            tensors.append(rows)
        return _Pool(tuple(tensors), [end + count]), end, indices

    def _capacity(self, used: int, count: int) -> int:
        """The capacity of a new pool with this number of rows, for steps of ``count`` more."""
        spare = _MIN_SPARE_STEPS
        if self.rows[0].device.type == "cpu":
            bytes_of_step = count * sum(rows.shape[1:].numel() * rows.element_size() for rows in self.rows)
            spare = max(spare, min(_MAX_SPARE_STEPS, _MAX_SPARE_BYTES // max(1, bytes_of_step)))
        return 2 * used + (spare + 1) * count


def gather_rows(
    rows: Sequence[Float[Tensor, "capacity heads size"]], row_indices: Int[Tensor, "batch time"]
) -> tuple[Float[Tensor, "batch heads time size"], ...]:
    """Copy the rows with these indices out of each tensor."""
    copies = (tensor.index_select(0, row_indices.flatten()) for tensor in rows)
    return tuple(copy.view(*row_indices.shape, *copy.shape[1:]).transpose(1, 2) for copy in copies)


def _concatenated(past: Tensor, new: Tensor) -> Float[Tensor, "batch heads time size"]:
    """Past and new positions, with the memory layout in which ``from_tensors`` flattens without a copy."""
    return torch.cat([past.transpose(1, 2), new.transpose(1, 2)], dim=1).transpose(1, 2)


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
    lengths: Lengths

    @staticmethod
    def from_tensors(
        tensors: Sequence[Float[Tensor, "batch heads source size"]], lengths: Lengths = None
    ) -> "CrossAttentionCache":
        """Return a cache that holds these tensors."""
        batch, _, source, _ = tensors[0].shape
        lengths = integer_lengths(lengths, batch, tensors[0].device, "memory_lengths")
        lengths = None if lengths is None else lengths.clone()  # the caller's may change
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
        """Return the caches of some members of the batch, in the given order; ``self`` if no member changes its memory.

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


Cache = KeyValueCache | CrossAttentionCache


def cached_softmax_attention(
    query: Float[Tensor, "batch heads 1 size"],
    cache: Cache,
    dropout: float = 0.0,
    positions: ScorePositions | None = None,
) -> Float[Tensor, "batch heads 1 size"]:
    """Return softmax attention of one query to the cached positions.

    Args:
        query: of each member.
        cache: its first two tensors are keys and values.
        dropout: rate at which weights are dropped.
        positions: acts on the scores; the query then has the position of the last key.
    """
    keys, values = cache.rows[:2]
    heads, size = query.shape[1], query.shape[3]
    of_this_size = keys.shape[1:] == (heads, size) and values.shape[1] == heads  # others are refused below
    if positions is None and dropout == 0 and of_this_size and can_index_rows(query, keys, values):
        scale = 1 / math.sqrt(max(size, 1))
        return softmax_attention_indexed(query, keys, values, cache.row_indices, cache.lengths, scale)
    keys, values = cache.tensors[:2]
    query, keys, bias = apply_positions(positions, query, keys, keys.shape[2] - 1)
    return softmax_attention(query, keys, values, memory_lengths=cache.lengths, mask=bias, dropout=dropout)

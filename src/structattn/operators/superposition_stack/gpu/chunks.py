"""Superposition stacks in chunks of steps on a GPU: how the Triton kernels are launched, forward and backward."""

from typing import NamedTuple

from torch import Tensor

from structattn.operators.common.gpu import dot_precision, gpu_kernels, launch, require_addressable

_CHUNK = 16  # L, steps of a chunk
_COLUMNS = 16  # WC, columns of a program
_WARPS = 4
_TABLES = 2**28  # numbers of the tables of the sequences that a backward pass works on at once: 1 GiB in float32


class Chunks(NamedTuple):
    """A batch of stacks and what the kernels need to know of it; all tensors are contiguous.

    Args:
        actions, values, lengths, initial: as for the public function, (B, T, 3), (B, T, m), (B,), (B, m) or None.
            Without values, the readings are the map of stack pointers, (B, T, T + 1).
        tf32: whether products of float32 numbers may be rounded to TF32.
    """

    actions: Tensor
    values: Tensor | None
    lengths: Tensor
    initial: Tensor | None
    tf32: bool

    @classmethod
    def of(
        cls, actions: Tensor, values: Tensor | None, lengths: Tensor, initial: Tensor | None, tf32: bool
    ) -> "Chunks":
        """Copy what is not contiguous."""
        values, initial = (None if x is None else x.contiguous() for x in (values, initial))
        return cls(actions.contiguous(), values, lengths.contiguous(), initial, tf32)

    def part(self, first: int, end: int) -> "Chunks":
        """Return some sequences of the batch."""
        values, initial = (None if x is None else x[first:end] for x in (self.values, self.initial))
        return Chunks(self.actions[first:end], values, self.lengths[first:end], initial, self.tf32)

    @property
    def columns(self) -> int:
        """The number of columns, m."""
        return self.actions.shape[1] + 1 if self.values is None else self.values.shape[2]

    @property
    def num_chunks(self) -> int:
        """N."""
        return -(-self.actions.shape[1] // _CHUNK)

    @property
    def tiles(self) -> int:
        """The number of tiles of the columns."""
        return -(-self.columns // _COLUMNS)

    def stack_rows(self, keep: bool) -> int:
        """Rows for a tile of a sequence: the stacks before all chunks and z for each, or, not to keep, two in turn."""
        if keep:
            return (self.num_chunks + 1) ** 2 // 4 * _CHUNK + self.num_chunks
        return (self.num_chunks + 1) // 2 * 2 * _CHUNK

    def table(self, *shape: int) -> Tensor:
        """Allocate numbers for each sequence."""
        return self.actions.new_empty(len(self.actions), *shape)

    def constants(self, slots: int) -> dict[str, int | str]:
        """Compile-time constants of the kernels that work on stacks."""
        units = self.values is None
        sizes = {"L": _CHUNK, "WC": _COLUMNS, "SLOTS": slots, "num_warps": _WARPS}
        kind = {"FULL": units or self.initial is not None, "UNITS": units}
        return {**sizes, **kind, "PRECISION": dot_precision(self.actions.dtype, self.tf32)}


def readings_in_chunks(given: Chunks) -> Tensor:
    """Return the readings (B, T, m), zeros from each length on."""
    readings = given.actions.new_zeros(*given.actions.shape[:2], given.columns)
    _forward(given, _operators(given, 2), readings, 2, keep=False)
    return readings


def gradients_in_chunks(given: Chunks, cotangent: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of actions, values and initial row; those of what is not given have no columns.

    The stacks are computed again. Part of the batch at a time, such that the tables fit into limited memory.
    """
    size = given.stack_rows(keep=True) * _COLUMNS
    require_addressable("superposition_stack", size)
    batch, step = len(cotangent), max(_TABLES // max(2 * given.tiles * size, 1), 1)
    grad_actions = given.actions.new_zeros(given.actions.shape)
    grad_values = cotangent.new_zeros(batch, 0) if given.values is None else given.values.new_zeros(given.values.shape)
    grad_initial = cotangent.new_zeros(batch, 0 if given.initial is None else given.columns)
    for first in range(0, batch, step):
        end = first + step
        outputs = (x[first:end] for x in (grad_actions, grad_values, grad_initial))
        _backward(given.part(first, end), cotangent[first:end], *outputs)
    return grad_actions, grad_values, grad_initial


def _operators(given: Chunks, slots: int) -> tuple[Tensor, Tensor]:
    """Return the operators of all chunks, as ``operators`` in forward_gpu_kernel.py describes them."""
    rows = given.table(given.num_chunks, slots, 2 * _CHUNK, 2 * _CHUNK)
    pushed = given.table(given.num_chunks, 2 * _CHUNK, _CHUNK)
    launch(
        gpu_kernels("superposition_stack.gpu.forward_gpu_kernel").operators,
        (given.num_chunks, len(rows)),
        (given.actions, given.lengths, rows, pushed),
        *(given.actions.shape[1], given.num_chunks),
        **{"L": _CHUNK, "SLOTS": slots},
    )
    return rows, pushed


def _forward(given: Chunks, operators: tuple[Tensor, Tensor], readings: Tensor, slots: int, *, keep: bool) -> Tensor:
    """Write the readings or, to keep, return the stacks before all chunks, (B, tiles, rows, WC)."""
    rows = given.stack_rows(keep)
    stacks = given.table(given.tiles, rows, _COLUMNS)
    values = readings if given.values is None else given.values
    launch(
        gpu_kernels("superposition_stack.gpu.forward_gpu_kernel").forward,
        (len(readings), given.tiles),
        (*operators, values, values if given.initial is None else given.initial, given.lengths, readings, stacks),
        *(given.actions.shape[1], given.columns, given.num_chunks, rows),
        **given.constants(slots),
        KEEP=keep,
    )
    return stacks


def _backward(
    given: Chunks, cotangent: Tensor, grad_actions: Tensor, grad_values: Tensor, grad_initial: Tensor
) -> None:
    """Write the gradients up to each sequence's length."""
    slots = _CHUNK + 1
    operators = _operators(given, slots)
    stacks = _forward(given, operators, cotangent, slots, keep=True)
    adjoints = stacks.new_empty(stacks.shape)
    scratch = given.table(given.num_chunks, 18 * _CHUNK**2)
    kernels = gpu_kernels("superposition_stack.gpu.backward_gpu_kernel")
    sizes = given.actions.shape[1], given.columns, given.num_chunks, given.stack_rows(keep=True)
    launch(
        kernels.adjoints,
        (len(cotangent), given.tiles),
        (cotangent, *operators, given.lengths, adjoints, grad_values, grad_initial),
        *sizes,
        **given.constants(slots),
    )
    values = cotangent if given.values is None else given.values
    launch(
        kernels.actions_adjoint,
        (given.num_chunks, len(cotangent)),
        (cotangent, given.actions, values, given.lengths, operators[0], stacks, adjoints, scratch, grad_actions),
        *(*sizes, given.tiles),
        **given.constants(slots),
    )

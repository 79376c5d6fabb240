"""Superposition stacks in chunks of steps on a GPU: how the Triton kernels are launched, forward and backward."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from structattn.operators.common.gpu import dot_precision, gpu_kernels, launch, require_addressable

_CHUNK = 16  # L, steps of a chunk
_COLUMNS = 16  # WC, columns of a program
_TABLES = 2**28  # numbers of the tables of the sequences that a backward pass works on at once: 1 GiB in float32

Gradients = tuple[Tensor, Tensor, Tensor]  # of actions, values and initial row
Stacks = tuple[Tensor, Tensor, Tensor]  # the operators of all chunks, and the stacks before them


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

    def parts(self) -> Iterator[slice]:
        """Yield ranges of the batch such that a backward pass has tables of limited size.

        Raises:
            ValueError: offsets in the tables of one sequence have more than 31 bits.
        """
        size = self.stack_rows(keep=True) * _COLUMNS
        require_addressable("superposition_stack", size)
        step = max(_TABLES // max(2 * self.tiles * size, 1), 1)
        yield from (slice(first, first + step) for first in range(0, len(self.actions), step))

    def part(self, sequences: slice) -> "Chunks":
        """Return some sequences of the batch."""
        values, initial = (None if x is None else x[sequences] for x in (self.values, self.initial))
        return Chunks(self.actions[sequences], values, self.lengths[sequences], initial, self.tf32)

    def zero_gradients(self) -> Gradients:
        """Return zeros for the gradients of actions, values and initial row; none of what is not given."""
        batch = len(self.actions)
        values, initial = (
            self.actions.new_zeros((batch, 0) if x is None else x.shape) for x in (self.values, self.initial)
        )
        return self.actions.new_zeros(self.actions.shape), values, initial

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

    def zero_readings(self) -> Tensor:
        """Return zeros for the readings.

        Raises:
            ValueError: offsets in those of one sequence have more than 31 bits.
        """
        require_addressable("superposition_stack", self.actions.shape[1] * self.columns)
        return self.actions.new_zeros(*self.actions.shape[:2], self.columns)

    def constants(self, rows: Tensor) -> dict[str, int | str]:
        """Return compile-time constants of the kernels that work on stacks; ``rows`` of the operators."""
        units = self.values is None
        sizes = {"L": _CHUNK, "WC": _COLUMNS, "SLOTS": rows.shape[2]}
        kind = {"FULL": units or self.initial is not None, "UNITS": units}
        return {**sizes, **kind, "PRECISION": dot_precision(self.actions.dtype, self.tf32)}


def readings_in_chunks(given: Chunks) -> Tensor:
    """Return the readings (B, T, m), zeros from each length on."""
    readings = given.zero_readings()
    _forward(given, _operators(given, slots=2), readings, keep=False, read=True)
    return readings


def gradients_in_chunks(given: Chunks, cotangent: Tensor) -> Gradients:
    """Return the gradients of actions, values and initial row. The stacks are computed again."""
    gradients = given.zero_gradients()
    for sequences in given.parts():
        part = given.part(sequences)
        add_adjoints(part, stacks_of_chunks(part), cotangent[sequences], *(x[sequences] for x in gradients))
    return gradients


def stacks_of_chunks(given: Chunks, readings: Tensor | None = None) -> Stacks:
    """Return the operators of all chunks and the stacks before them; if ``readings`` are given, write them, too."""
    operators = _operators(given, slots=_CHUNK + 1)
    target = given.actions if readings is None else readings
    return *operators, _forward(given, operators, target, keep=True, read=readings is not None)


def add_adjoints(
    given: Chunks, stacks: Stacks, cotangent: Tensor, grad_actions: Tensor, grad_values: Tensor, grad_initial: Tensor
) -> None:
    """Write the gradients up to each sequence's length."""
    rows, pushed, tables = stacks
    adjoints = tables.new_empty(tables.shape)
    scratch = given.table(given.num_chunks, 18 * _CHUNK**2)
    kernels = gpu_kernels("superposition_stack.gpu.backward_gpu_kernel")
    sizes = given.actions.shape[1], given.columns, given.num_chunks, given.stack_rows(keep=True)
    constants = given.constants(rows)
    launch(
        kernels.adjoints,
        (len(cotangent), given.tiles),
        (cotangent, rows, pushed, given.lengths, adjoints, grad_values, grad_initial),
        *sizes,
        **constants,
    )
    values = cotangent if given.values is None else given.values
    launch(
        kernels.actions_adjoint,
        (given.num_chunks, len(cotangent)),
        (cotangent, given.actions, values, given.lengths, rows, tables, adjoints, scratch, grad_actions),
        *(*sizes, given.tiles),
        **constants,
    )


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


def _forward(given: Chunks, operators: tuple[Tensor, Tensor], readings: Tensor, *, keep: bool, read: bool) -> Tensor:
    """Return the stacks before all chunks, (B, tiles, rows, WC), if they are kept; write the readings to read."""
    rows = given.stack_rows(keep)
    stacks = given.table(given.tiles, rows, _COLUMNS)
    values = readings if given.values is None else given.values
    launch(
        gpu_kernels("superposition_stack.gpu.forward_gpu_kernel").forward,
        (len(stacks), given.tiles),
        (*operators, values, values if given.initial is None else given.initial, given.lengths, readings, stacks),
        *(given.actions.shape[1], given.columns, given.num_chunks, rows),
        **given.constants(operators[0]),
        **{"KEEP": keep, "READ": read},
    )
    return stacks

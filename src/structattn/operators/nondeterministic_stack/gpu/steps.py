"""The nondeterministic stack step by step on a GPU, without derivatives; see step_gpu_kernel.py."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.gpu import gpu_kernels, launch, power_of_two
from structattn.operators.nondeterministic_stack.arguments import NondeterministicStackState, in_rows

_TERMS = 16  # of a sum, for each thread at a time


@dataclass(eq=False)
class GpuState(NondeterministicStackState):
    """The columns of all steps so far, which other states share.

    Attributes:
        bottom: the vector of the bottom item, (m,).
        addresses: of each member's column of each time 0 .. t, (B, t+1) int64.
        columns: the tensors that hold these columns, one for each time, (any number of members, size of a column).
        window: maximum number of steps between a push and its pop, or None.
    """

    bottom: Tensor
    addresses: Tensor
    columns: tuple[Tensor, ...]
    window: int | None

    @staticmethod
    def initial(bottom: Tensor, batch: int, states: int, symbols: int, window: int | None) -> "GpuState":
        """Return the state before the first step."""
        C, m = states * symbols, len(bottom)
        bottom = bottom.detach()
        first = bottom.new_zeros(batch, _start_of_gamma(states, symbols, m), dtype=torch.float64)
        first[:, 1:C] = -torch.inf
        start = first.shape[1] - C * m
        first[:, start : start + m] = bottom
        reading = first[:, start:].view(batch, states, symbols, m).to(bottom.dtype)
        return GpuState.of_columns(reading, bottom, (first,), window)

    @staticmethod
    def of_columns(reading: Tensor, bottom: Tensor, columns: tuple[Tensor, ...], window: int | None) -> "GpuState":
        """Return the state whose members' columns are the rows of these tensors."""
        members = torch.arange(len(reading), device=reading.device)
        addresses = [members * _bytes_of_column(column) + column.data_ptr() for column in columns]
        return GpuState(reading, bottom, torch.stack(addresses, 1), columns, window)

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles hold their own columns only.
        return GpuState.of_columns, (self.reading, self.bottom, tuple(self.own_columns()), self.window)

    def own_columns(self) -> list[Tensor]:
        """Return copies of the members' columns, (B, size) for each time."""
        return [
            column.index_select(0, (addresses - column.data_ptr()) // _bytes_of_column(column))
            for addresses, column in zip(self.addresses.unbind(1), self.columns, strict=True)
        ]

    def select(self, indices: Tensor) -> "GpuState":
        """Return the states of some members of the batch. Cost: t addresses for each; no columns are copied."""
        reading, addresses = (x.index_select(0, indices) for x in (self.reading, self.addresses))
        return GpuState(reading, self.bottom, addresses, self.columns, self.window)

    def detach(self) -> "GpuState":
        """Return the same state: it has no gradient history."""
        return self

    def steps(self) -> list[tuple[tuple[Tensor, ...], Tensor]]:
        """Return logits and value of each step so far."""
        batch, Q, S, m = self.reading.shape
        C = Q * S
        shapes = (batch, Q, S, Q, S), (batch, Q, S, Q, S), (batch, Q, S, Q), (batch, m)
        inputs = []
        for column in self.own_columns()[1:]:
            parts = column[:, C : C + C * (2 * C + Q) + m].split_with_sizes([C * C, C * C, C * Q, m], 1)
            views = [x.reshape(s).to(self.reading.dtype) for x, s in zip(parts, shapes, strict=True)]
            inputs.append((tuple(views[:3]), views[3]))
        return inputs

    def after(self, logits: tuple[Tensor, ...], value: Tensor) -> "GpuState":
        """Take one step in two launches, one if it is the first. No sum waits for another.

        Cost: t²/2 · Q³S² exponentials, t · Q²S² + QSm numbers for the new column.
        """
        push, replace, pop = (in_rows(x) for x in logits)
        batch, Q, S, m = self.reading.shape
        t = len(self.columns)
        reach = t if self.window is None else min(t, self.window)
        lowest = max(0, t - 1 - reach)
        size = _start_of_gamma(Q, S, m) + reach * (Q * S) ** 2
        now = self.addresses.new_empty(batch, size, dtype=torch.float64)
        reading, addresses = torch.empty_like(self.reading), self.addresses.new_empty(batch, t + 1)
        popped = now.new_empty(batch, t - 1 - lowest, Q * S, Q)
        kernels, (both, own) = gpu_kernels("nondeterministic_stack.gpu.step_gpu_kernel"), _sizes(Q, S)
        grid = -(-popped.shape[1] // both["KB"]), batch
        tensors: tuple[Tensor, ...] = self.addresses, pop, popped
        launch(kernels.uncover, grid, tensors, t, lowest, m, pop.stride(0), pop.stride(2), **both)
        grid = reach + max(1, m), batch
        tensors = self.addresses, popped, push, replace, pop, value.contiguous(), now, reading, addresses
        strides = [stride for x in (push, replace, pop) for stride in (x.stride(0), x.stride(2))]
        double = reading.dtype == torch.float64
        launch(kernels.advance, grid, tensors, t, lowest, reach, size, m, *strides, **both, **own, DOUBLE=double)
        return GpuState(reading, self.bottom, addresses, (*self.columns, now), self.window)


def _start_of_gamma(states: int, symbols: int, vector: int) -> int:
    """Return how many numbers of a column come before gamma."""
    C = states * symbols
    return C * (1 + 2 * C + states + vector) + vector


def _bytes_of_column(column: Tensor) -> int:
    return column.shape[1] * column.element_size()


def _sizes(states: int, symbols: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return the constants of both kernels, and those of `advance` alone."""
    configurations = states * symbols
    QP, CP, LINKS = (power_of_two(size) for size in (states, configurations, configurations**2))
    warps = min(max(LINKS * QP // (32 * _TERMS), 1), 8)
    KB = min(max(32 * _TERMS * warps // (LINKS * QP), 1), 16)
    both = {"Q": states, "S": symbols, "QP": QP, "CP": CP, "KB": KB, "num_warps": warps}
    return both, {"LINKS": LINKS, "KP": KB * LINKS // CP}

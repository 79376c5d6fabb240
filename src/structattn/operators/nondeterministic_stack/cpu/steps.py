"""The nondeterministic stack step by step, by the compiled CPU kernel.

All steps of a sequence share one record, to which each step appends a column. A state is a record and a number of
steps. If a state is not the newest of its record, because it has been stepped before, its part of the record is copied
first.

Gradients flow through a placeholder for the record: an expanded tensor with the shape of the record's adjoint. Its
gradient in autograd is the adjoint, which the backward pass of each step updates in place. That is safe, because
autograd sums the adjoints of several successors and keeps none of them.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.operators.common.differentiation import in_forward_mode, transforms_active
from structattn.operators.common.kernels import kernel_module
from structattn.operators.common.registration import refuse_double_backward
from structattn.operators.nondeterministic_stack.arguments import NondeterministicStackState, in_rows
from structattn.operators.nondeterministic_stack.cpu import kernel_window

_FIRST_ROOM = 64  # steps


@functools.cache
def _kernel(name: str, dtype: torch.dtype | None = None) -> Callable[..., Any]:
    suffix = "" if dtype is None else "_" + str(dtype).removeprefix("torch.")
    function: Callable[..., Any] = getattr(kernel_module(), f"nondeterministic_stack_{name}{suffix}")
    return function


class Records:
    """The records of a batch, with room for ``capacity`` steps.

    ``newest`` contains one number, that of the steps so far, except while a step is being added: the caller that
    removes it may write the next column.
    """

    __slots__ = ("adjoint_size", "mirror_size", "mirrors", "newest", "numbers", "shape")

    def __init__(self, batch: int, capacity: int, states: int, symbols: int, vector: int, reach: int) -> None:
        self.shape = (batch, capacity, states, symbols, vector, reach)
        size, self.adjoint_size, self.mirror_size = _kernel("record_sizes")(*self.shape[1:])
        self.numbers = torch.empty(batch, size, dtype=torch.float64, device="cpu")
        self.mirrors: Tensor | None = None
        self.newest: set[int] = set()

    def may_write_after(self, steps: int) -> bool:
        """Whether the caller, exclusively, may write the column after this number of steps."""
        try:
            self.newest.remove(steps)  # at once, so that only one of several threads can have it
        except KeyError:
            return False
        return True

    def placeholder(self) -> Tensor:
        """Return a placeholder for the adjoint of these records in the autograd graph."""
        return self.numbers.new_zeros(1, 1).expand(self.shape[0], self.adjoint_size)

    def empty_adjoint(self) -> Tensor:
        """Return an adjoint of zeros."""
        return self.numbers.new_zeros(self.shape[0], self.adjoint_size)

    def mirror(self) -> Tensor:
        """Return memory for the transposed tables of the backward pass, which the kernel fills as needed."""
        if self.mirrors is None:
            self.mirrors = self.numbers.new_zeros(self.shape[0], self.mirror_size)
        return self.mirrors

    def copied(self, steps: int, chosen: Tensor, capacity: int) -> "Records":
        """Copy the first steps of some members of the batch."""
        copy = Records(len(chosen), capacity, *self.shape[2:])
        addresses = self.numbers.data_ptr(), self.shape[1], copy.numbers.data_ptr(), capacity, chosen.data_ptr()
        _kernel("copy")(*addresses, steps, len(chosen), *self.shape[2:])
        copy.newest.add(steps)
        return copy


class _Start(torch.autograd.Function):
    """Initialise records from the bottom vector."""

    @staticmethod
    def forward(ctx: Any, bottom: Tensor, records: Records) -> Tensor:
        ctx.records, ctx.dtype = records, bottom.dtype
        _kernel("start", bottom.dtype)(records.numbers.data_ptr(), bottom.data_ptr(), *records.shape)
        records.newest.add(0)
        return records.placeholder()

    @staticmethod
    def backward(ctx: Any, adjoint: Tensor) -> tuple[Tensor, None]:
        bottom_ = adjoint.new_empty(ctx.records.shape[4], dtype=ctx.dtype)
        _kernel("bottom_backward", ctx.dtype)(adjoint.data_ptr(), bottom_.data_ptr(), *ctx.records.shape)
        return _derived_once([bottom_], adjoint)[0], None


class _Copy(torch.autograd.Function):
    """Copy the first steps of records."""

    @staticmethod
    def forward(ctx: Any, placeholder: Tensor, records: Records, copy: Records, steps: int, chosen: Tensor) -> Tensor:
        ctx.records, ctx.copy, ctx.steps, ctx.chosen = records, copy, steps, chosen
        return copy.placeholder()

    @staticmethod
    def backward(ctx: Any, adjoint: Tensor) -> tuple[Tensor | None, ...]:
        records, copy = ctx.records, ctx.copy
        result = records.empty_adjoint()
        addresses = copy.numbers.data_ptr(), adjoint.data_ptr(), copy.shape[1], result.data_ptr(), records.shape[1]
        _kernel("copy_backward")(*addresses, ctx.chosen.data_ptr(), ctx.steps, copy.shape[0], *copy.shape[2:])
        return _derived_once([result], adjoint)[0], None, None, None, None


def _addresses_and_strides(push: Tensor, replace: Tensor, pop: Tensor) -> tuple[int, ...]:
    """Return the address, batch stride and configuration stride of each tensor."""
    return tuple(number for x in (push, replace, pop) for number in (x.data_ptr(), x.stride(0), x.stride(2)))


def _reading(records: Records, step: int, value: Tensor, logits: tuple[Tensor, ...]) -> Tensor:
    batch, _, states, symbols, vector, _ = records.shape
    reading = value.new_empty(batch, states, symbols, vector)
    arguments = *_addresses_and_strides(*logits), value.data_ptr(), reading.data_ptr()
    kernel = _kernel("step", value.dtype)
    kernel(records.numbers.data_ptr(), *arguments, step, *records.shape, torch.get_num_threads())
    records.newest.add(step)
    return reading


class _Step(torch.autograd.Function):
    """Take one step; return its reading and the placeholder of the records."""

    @staticmethod
    def forward(
        ctx: Any, records: Records, step: int, placeholder: Tensor, value: Tensor, *logits: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.records, ctx.step, ctx.dtype = records, step, value.dtype
        ctx.shapes = [x.shape for x in logits]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(placeholder, value, *logits)  # for double backward to know what it would differentiate
        return _reading(records, step, value, logits), placeholder

    @staticmethod
    def backward(ctx: Any, reading_: Tensor | None, adjoint: Tensor | None) -> tuple[Tensor | None, ...]:
        records, dtype = ctx.records, ctx.dtype
        adjoint = records.empty_adjoint() if adjoint is None else adjoint
        reading_ = None if reading_ is None else reading_.contiguous()
        logits_ = tuple(adjoint.new_empty(shape, dtype=dtype) for shape in ctx.shapes)
        value_ = adjoint.new_empty(records.shape[0], records.shape[4], dtype=dtype)
        _kernel("step_backward", dtype)(
            *(records.numbers.data_ptr(), adjoint.data_ptr(), records.mirror().data_ptr()),
            *(0 if reading_ is None else reading_.data_ptr(), *_addresses_and_strides(*logits_), value_.data_ptr()),
            *(ctx.step, *records.shape, torch.get_num_threads()),
        )
        return (None, None, *_derived_once([adjoint, value_, *logits_], *ctx.saved_tensors))


def _derived_once(gradients: Sequence[Tensor], *inputs: Tensor) -> Sequence[Tensor]:
    """Return gradients that refuse double backward; ``inputs``: what they were computed from."""
    if not torch.is_grad_enabled():
        return gradients
    once: tuple[Tensor, ...] = _Once.apply(len(gradients), *gradients, *inputs)  # type: ignore[no-untyped-call]
    return once


class _Once(torch.autograd.Function):
    """Identity of the gradients that refuses double backward, to the inputs of the step."""

    @staticmethod
    def forward(ctx: Any, count: int, *gradients_and_inputs: Tensor) -> tuple[Tensor, ...]:
        return gradients_and_inputs[:count]

    backward = staticmethod(refuse_double_backward("nondeterministic_stack_step", "CPU"))


def _refuse_transforms() -> None:
    if transforms_active() or in_forward_mode():
        raise NotImplementedError(
            "nondeterministic_stack_step: torch.func and forward-mode derivatives are not supported by the CPU kernel; "
            "use implementation='reference'"
        )


class KernelState(NondeterministicStackState):
    """The first ``steps`` steps of ``records``; ``placeholder`` carries their gradients."""

    def __init__(self, reading: Tensor, records: Records, steps: int, placeholder: Tensor) -> None:
        super().__init__(reading)
        self._records, self._steps, self._placeholder = records, steps, placeholder

    @staticmethod
    def initial(bottom: Tensor, batch: int, states: int, symbols: int, window: int | None) -> "KernelState":
        """Return the state before the first step."""
        _refuse_transforms()
        bottom = bottom.contiguous()
        records = Records(batch, _FIRST_ROOM, states, symbols, len(bottom), kernel_window(window))
        others = states * symbols - 1
        reading = F.pad(bottom.expand(batch, 1, -1), (0, 0, 0, others)).view(batch, states, symbols, len(bottom))
        return KernelState(reading, records, 0, _Start.apply(bottom, records))  # type: ignore[no-untyped-call]

    def select(self, indices: Tensor) -> "KernelState":
        """Copy some members of the batch."""
        members = torch.arange(self._records.shape[0], device="cpu").index_select(
            0, indices
        )  # in range, int64 and contiguous
        records, placeholder = self._copied(members, self._records.shape[1])
        return KernelState(self.reading.index_select(0, members), records, self._steps, placeholder)

    def detach(self) -> "KernelState":
        """Return the same records without gradient history."""
        return KernelState(self.reading.detach(), self._records, self._steps, self._placeholder.detach())

    def after(self, logits: tuple[Tensor, ...], value: Tensor) -> "KernelState":
        """Take one step, in a new column of the records or of a copy of them.

        Raises:
            NotImplementedError: within a transform of torch.func, or in forward mode.
        """
        _refuse_transforms()
        logits, value = tuple(in_rows(x) for x in logits), value.contiguous()
        records, placeholder = self._records_to_write()
        step = self._steps + 1
        if torch.is_grad_enabled():
            reading, placeholder = _Step.apply(records, step, placeholder, value, *logits)  # type: ignore[no-untyped-call]
        else:
            reading = _reading(records, step, value, logits)
        return KernelState(reading, records, step, placeholder)

    def _records_to_write(self) -> tuple[Records, Tensor]:
        batch, room, *_ = self._records.shape
        if self._steps < room and self._records.may_write_after(self._steps):
            return self._records, self._placeholder
        records, placeholder = self._copied(torch.arange(batch, device="cpu"), max(room, 2 * self._steps))
        records.may_write_after(self._steps)
        return records, placeholder

    def _copied(self, chosen: Tensor, capacity: int) -> tuple[Records, Tensor]:
        copy = self._records.copied(self._steps, chosen, capacity)
        return copy, _Copy.apply(self._placeholder, self._records, copy, self._steps, chosen)  # type: ignore[no-untyped-call]

"""The compiled recurrence as a torch operator with its gradient.

The kernel goes back in time and gives the adjoints of the sums at every step, those of the gates and those of what the
stack is told; the gradients of the maps are products of these with what the maps were given, one each for all steps.
"""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.kernels import kernel_for
from structattn.operators.nondeterministic_stack.gradient import reach_of, table_size
from structattn.operators.stack_rnn.cells import CELLS, Cell
from structattn.operators.stack_rnn.stacks import PUSHED, STACKS, RecurrentStack

_FORWARD, _BACKWARD = "structattn::stack_rnn", "structattn::stack_rnn_backward"

# Defined by schema, not by the custom_op decorator, which adds 60 µs to every pass. ``sizes``: see _sizes().
torch.library.define(
    _FORWARD,
    "(Tensor inputs, Tensor recurrent, Tensor heads, Tensor bias, Tensor bottom, Tensor? lengths, int[] sizes) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
torch.library.define(
    _BACKWARD,
    "(Tensor cotangent, Tensor recurrent, Tensor heads, Tensor? lengths, Tensor hiddens, Tensor gates, Tensor cells, "
    "Tensor actions, Tensor values, Tensor tables, int[] sizes) -> (Tensor, Tensor, Tensor)",
)

Forward = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
_LANES = 8


def _sizes(cell: Cell, stack: RecurrentStack) -> list[int]:
    """The cell, the stack and its activation by number, then m, Q, S, and the window."""
    kinds = [CELLS.index(cell), STACKS.index(stack.name), PUSHED.index(stack.pushed)]
    return [*kinds, stack.vector, stack.states, stack.symbols, reach_of(stack.window)]


def _cell_and_stack(sizes: list[int]) -> tuple[Cell, RecurrentStack]:
    cell, name, pushed, vector, states, symbols, reach = sizes
    window = None if reach == reach_of(None) else reach
    return CELLS[cell], RecurrentStack(STACKS[name], vector, states, symbols, PUSHED[pushed], window)


def stack_rnn_op(cell: Cell, stack: RecurrentStack, lengths: Tensor | None, *tensors: Tensor) -> Tensor:
    """Hidden vectors by the compiled kernel; ``tensors`` as the public function has them, checked, on a CPU."""
    hiddens: Tensor = torch.ops.structattn.stack_rnn(*tensors, lengths, _sizes(cell, stack))[0]
    return hiddens


def _record_size(time: int, stack: RecurrentStack) -> int:
    """Doubles for what is kept of one sequence; plain arithmetic, so that it holds for a symbolic ``time`` too."""
    if stack.name != "nondeterministic":
        return 0
    steps, targets = torch.sym_max(time - 1, 1), stack.states * stack.symbols  # type: ignore[no-untyped-call]
    numbers = (steps + 1) * (1 + stack.vector) + steps * targets * (2 * targets + stack.states)
    return int(numbers + 5 * _LANES) + table_size(steps, stack.states, stack.symbols, stack.vector, stack.window)


def _run(
    direction: str, first: Tensor, tables: Tensor, given: tuple[Tensor | None, ...], sizes: list[int], units: int
) -> None:
    """Give the kernel the addresses of contiguous tensors, of which ``first`` tells dtype, batch and time."""
    _, function = kernel_for(f"stack_rnn_{direction}", first.dtype)
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in given]
    cell, name, pushed, *others = sizes
    numbers = [*first.shape[:2], units, cell, name, pushed, *others, tables.shape[1]]
    function(addresses, numbers, torch.get_num_threads())


def _contiguous(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    return tuple(None if tensor is None else tensor.contiguous() for tensor in tensors)


@torch.library.impl(_FORWARD, "cpu")
def _forward(
    inputs: Tensor,
    recurrent: Tensor,
    heads: Tensor,
    bias: Tensor,
    bottom: Tensor,
    lengths: Tensor | None,
    sizes: list[int],
) -> Forward:
    results = _fake_forward(inputs, recurrent, heads, bias, bottom, lengths, sizes)
    given = _contiguous(inputs, recurrent, heads, bias, bottom, lengths)
    _run("forward", inputs, results[-1], (*given, *results), sizes, heads.shape[1])
    return results


@torch.library.impl(_BACKWARD, "cpu")
def _backward(
    cotangent: Tensor,
    recurrent: Tensor,
    heads: Tensor,
    lengths: Tensor | None,
    hiddens: Tensor,
    gates: Tensor,
    cells: Tensor,
    actions: Tensor,
    values: Tensor,
    tables: Tensor,
    sizes: list[int],
) -> tuple[Tensor, Tensor, Tensor]:
    kept = hiddens, gates, cells, actions, values, tables
    results = _fake_backward(cotangent, recurrent, heads, lengths, *kept, sizes)
    given = _contiguous(cotangent, recurrent, heads, lengths, *kept)
    _run("backward", cotangent, tables, (*given, *results), sizes, heads.shape[1])
    return results


def _fake_forward(
    inputs: Tensor,
    recurrent: Tensor,
    heads: Tensor,
    bias: Tensor,
    bottom: Tensor,
    lengths: Tensor | None,
    sizes: list[int],
) -> Forward:
    """Hidden vectors, what the recurrent map is given, gates, cells (c, tanh c), actions, pushed vectors, records."""
    batch, time, gates = inputs.shape
    units, (cell, stack) = heads.shape[1], _cell_and_stack(sizes)
    widths = [
        units,
        units + stack.reading_size,
        gates,
        2 * units if cell == "lstm" else 0,
        0 if stack.name == "nondeterministic" else stack.action_size,
        stack.vector,
    ]
    tables = inputs.new_empty(batch, _record_size(time, stack), dtype=torch.float64)
    hiddens, sources, gates_, cells, actions, values = (inputs.new_empty(batch, time, width) for width in widths)
    return hiddens, sources, gates_, cells, actions, values, tables


def _fake_backward(
    cotangent: Tensor,
    recurrent: Tensor,
    heads: Tensor,
    lengths: Tensor | None,
    hiddens: Tensor,
    gates: Tensor,
    cells: Tensor,
    actions: Tensor,
    values: Tensor,
    tables: Tensor,
    sizes: list[int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Adjoints of the gates' sums (B, T, G), of the stack's (B, T, A + m), of each sequence's bottom vector (B, m)."""
    batch, time = gates.shape[:2]
    outputs = gates.new_empty(batch, time, heads.shape[0])
    return gates.new_empty(gates.shape), outputs, gates.new_empty(batch, values.shape[2])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Forward) -> None:
    _, recurrent, heads, _, _, lengths, ctx.sizes = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(recurrent, heads, lengths, *output)


def _gradient(ctx: Any, cotangent: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    if cotangent is None:
        return (None,) * 7
    recurrent, heads, lengths, hiddens, sources, *kept = ctx.saved_tensors
    gates, outputs, bottoms = torch.ops.structattn.stack_rnn_backward(
        cotangent, recurrent, heads, lengths, hiddens, *kept, ctx.sizes
    )
    gates_, outputs_ = gates.flatten(0, 1), outputs.flatten(0, 1)
    of_maps = gates_.t() @ sources.flatten(0, 1), outputs_.t() @ hiddens.flatten(0, 1)
    return gates, *of_maps, outputs_.sum(0), bottoms.sum(0), None, None


def _refuse_second_gradient(ctx: Any, *cotangents: Tensor) -> None:
    raise NotImplementedError("stack_rnn: the compiled kernel has no second derivative; implementation='reference' has")


torch.library.register_fake(_FORWARD, _fake_forward)
torch.library.register_fake(_BACKWARD, _fake_backward)
torch.library.register_autograd(_FORWARD, _gradient, setup_context=_save)
torch.library.register_autograd(_BACKWARD, _refuse_second_gradient)

"""Recurrent networks with stacks by the compiled CPU kernel.

The backward kernel goes back in time and returns the adjoints of the sums at every step, those of the gates and those
of the stack's actions and pushed vector; the gradients of the linear maps are products of these with the maps' inputs,
one product each for all steps.
"""

from typing import Any

import torch
from torch import Tensor

from structattn.operators.common.checks import without_autocast
from structattn.operators.common.kernels import contiguous, kernel_for
from structattn.operators.common.registration import Batching, refuse_double_backward, register
from structattn.operators.nondeterministic_stack.cpu import kernel_window as _limit
from structattn.operators.stack_rnn.stacks import CELLS, PUSHED, STACKS, Cell, RecurrentStack

Forward = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
_BATCHING = Batching(shared=("recurrent", "heads", "bias", "bottom"))


def encoded(cell: Cell, stack: RecurrentStack) -> list[int]:
    """Encode cell, stack and activation of the pushed vector as numbers, then m, Q, S, the window and the depth."""
    kinds = [CELLS.index(cell), STACKS.index(stack.name), PUSHED.index(stack.pushed)]
    return [*kinds, stack.vector, stack.states, stack.symbols, _limit(stack.window), _limit(stack.depth)]


def _decoded(sizes: list[int]) -> tuple[Cell, RecurrentStack]:
    cell, name, pushed, vector, states, symbols, *limits = sizes
    window, depth = (None if limit == _limit(None) else limit for limit in limits)
    return CELLS[cell], RecurrentStack(STACKS[name], vector, states, symbols, PUSHED[pushed], window, depth)


def _run(direction: str, first: Tensor, tensors: tuple[Tensor | None, ...], sizes: list[int], units: int) -> None:
    """Call the kernel; ``first`` has its dtype, batch and time. Inputs that are not contiguous are copied."""
    given = contiguous(*tensors)
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in given]
    numbers = [*first.shape[:2], units, *sizes]
    kernel_for(f"stack_rnn_{direction}", first.dtype)(addresses, numbers, torch.get_num_threads())


def _empty_adjoints(cotangent: Tensor, recurrent: Tensor, heads: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    _, _, _, gates, _, _, values, *_ = rest
    batch, time = gates.shape[:2]
    outputs = gates.new_empty(batch, time, heads.shape[0])
    return gates.new_empty(gates.shape), outputs, gates.new_empty(batch, values.shape[2])


@register(
    "stack_rnn_backward",
    fake=_empty_adjoints,
    gradient=refuse_double_backward("stack_rnn", "CPU"),
    batching=_BATCHING,
)
def stack_rnn_backward(
    cotangent: Tensor,
    recurrent: Tensor,
    heads: Tensor,
    bottom: Tensor,
    lengths: Tensor | None,
    hiddens: Tensor,
    gates: Tensor,
    cells: Tensor,
    actions: Tensor,
    values: Tensor,
    sizes: list[int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Adjoints of the gates' sums (B, T, G), of the stack's (B, T, A + m), of each sequence's bottom vector (B, m)."""
    tensors = cotangent, recurrent, heads, bottom, lengths, hiddens, gates, cells, actions, values
    results = _empty_adjoints(*tensors)
    _run("backward", cotangent, (*tensors, *results), sizes, heads.shape[1])
    return results


def _save(ctx: Any, inputs: tuple[Any, ...], output: Forward) -> None:
    _, recurrent, heads, _, bottom, lengths, ctx.sizes = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(recurrent, heads, bottom, lengths, *output)


def _gradient(ctx: Any, cotangent: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    if cotangent is None:
        return (None,) * 7
    recurrent, heads, bottom, lengths, hiddens, sources, *kept = ctx.saved_tensors
    gates, outputs, bottoms = stack_rnn_backward(
        cotangent, recurrent, heads, bottom, lengths, hiddens, *kept, ctx.sizes
    )
    gates_, outputs_ = gates.flatten(0, 1), outputs.flatten(0, 1)
    with without_autocast(gates.device):  # that of a caller of backward
        of_maps = gates_.t() @ sources.flatten(0, 1), outputs_.t() @ hiddens.flatten(0, 1)
    return gates, *of_maps, outputs_.sum(0), bottoms.sum(0), None, None


def _empty_outputs(inputs: Tensor, recurrent: Tensor, heads: Tensor, *rest: Any) -> Forward:
    batch, time, gates = inputs.shape
    units, (cell, stack) = heads.shape[1], _decoded(rest[-1])
    widths = [
        units,
        units + stack.reading_size,
        gates,
        2 * units if cell == "lstm" else 0,
        stack.action_size,
        stack.vector,
    ]
    hiddens, sources, gates_, cells, actions, values = (inputs.new_empty(batch, time, width) for width in widths)
    return hiddens, sources, gates_, cells, actions, values


@register("stack_rnn", fake=_empty_outputs, gradient=_gradient, save=_save, batching=_BATCHING)
def stack_rnn_cpu(
    inputs: Tensor,
    recurrent: Tensor,
    heads: Tensor,
    bias: Tensor,
    bottom: Tensor,
    lengths: Tensor | None,
    sizes: list[int],
) -> Forward:
    """Hidden vectors, inputs of the recurrent map, gates, cells (c, tanh c), actions, pushed vectors.

    Arguments as for the public function, checked; ``sizes`` from ``encoded``.
    """
    tensors = inputs, recurrent, heads, bias, bottom, lengths
    results = _empty_outputs(*tensors, sizes)
    _run("forward", inputs, (*tensors, *results), sizes, heads.shape[1])
    return results

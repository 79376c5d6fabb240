"""The residual sublayer with a nondeterministic stack on a CPU, by the compiled kernel."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from structattn.fast.residual_sublayers.sequence import addresses, empty_gradients, gradients_once
from structattn.operators.common.kernels import contiguous, kernel_for, kernel_module
from structattn.operators.nondeterministic_stack.cpu import kernel_window, table_size

_ROW_UNIT, _HEADER = 16, 8  # as in common/small_matrix.h, and nondeterministic_stack/cpu/whole_sequence.h


class StackWeights(NamedTuple):
    """The parameters of a sublayer with a nondeterministic stack of Q states, S symbols and vectors of size m.

    Args:
        scale: of the layer norm, (d,).
        shift: of the layer norm, (d,); None: zeros.
        first: the projection to the logits of A transitions, laid out for each (q, x) as push (r, y), replace (r, y),
            pop (r), and to the pushed vector, (A + m, d).
        second: the output projection, (d, Q S m).
        bottom: the bottom vector before its sigmoid, (m,).
    """

    scale: Tensor
    shift: Tensor | None
    first: Tensor
    second: Tensor
    bottom: Tensor


class StackOptions(NamedTuple):
    """Numbers of states and symbols; the window; whether vectors are exp; others as in ``StackSublayer``."""

    num_states: int
    num_symbols: int
    window: int | None
    exponential: bool
    offsets: Tensor
    epsilon: float
    dropped: int


def run_stack(
    x: Tensor, weights: StackWeights, lengths: Tensor | None, numbers: Tensor | None, options: StackOptions
) -> Tensor:
    """Return the output of the sublayer; ``numbers`` are those of ``apply_mask``, for the elements of the output."""
    y: Tensor = _Stack.apply(x, options, lengths, numbers, *weights)  # type: ignore[no-untyped-call]  # torch's
    return y


class _Stack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, options: StackOptions, lengths: Tensor | None, numbers: Tensor | None, *given: Tensor
    ) -> Tensor:
        x, (lengths, numbers, *weights) = x.contiguous(), contiguous(lengths, numbers, *given)
        kept, y = _empty_tables(x, options, *given[2:]), x.new_empty(x.shape)
        kernel_for("residual_stack_forward", x.dtype)(
            _call(x, weights[4], (lengths, numbers, *kept), options),
            x.data_ptr(),
            *_of_weights(weights),
            y.data_ptr(),
            torch.get_num_threads(),
        )
        ctx.options = options
        ctx.save_for_backward(x, lengths, numbers, *kept, *weights)
        return y

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        grad_x, *gradients = gradients_once(_gradients, ctx.options, cotangent, *ctx.saved_tensors)
        return grad_x, None, None, None, *gradients


def _gradients(options: StackOptions, cotangent: Tensor, x: Tensor, *saved: Any) -> tuple[Tensor | None, ...]:
    """Return the gradients of x and of the weights."""
    extras, weights = saved[:5], saved[5:]
    cotangent, grad_x, gradients = cotangent.contiguous(), x.new_empty(x.shape), empty_gradients(weights, x)
    kernel_for("residual_stack_backward", x.dtype)(
        _call(x, weights[4], extras, options),
        x.data_ptr(),
        *_of_weights(weights),
        *addresses((cotangent, grad_x)),
        *_of_weights(gradients),
        torch.get_num_threads(),
    )
    return grad_x, *gradients


def _empty_tables(
    x: Tensor, options: StackOptions, first: Tensor, second: Tensor, bottom: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Allocate, for the backward pass, W_1 LayerNorm(x) and the readings, in padded rows, and the stack's tables."""
    batch, time, _ = x.shape
    rows, readings = (
        x.new_empty(batch, time, -(-size // _ROW_UNIT) * _ROW_UNIT) for size in (first.shape[0], second.shape[1])
    )
    size = table_size(time, options.num_states, options.num_symbols, len(bottom), options.window)
    return rows, readings, x.new_empty(batch, _HEADER + size, dtype=torch.float64)


def _call(x: Tensor, bottom: Any, extras: tuple[Tensor | None, ...], options: StackOptions) -> Any:
    """Return the arguments of a call; ``extras`` are lengths, mask numbers, rows, readings and tables."""
    states, symbols, window, exponential, offsets, *numbers = options
    sizes = *x.shape, states, symbols, len(bottom), kernel_window(window)
    tables: Any = extras[-1]
    places = [*addresses((offsets, *extras)), tables.shape[1]]
    return kernel_module().ResidualStackCall(sizes, exponential, *numbers, places)


def _of_weights(weights: Any) -> tuple[list[int], int]:
    """Return the addresses of the parameters that all sublayers have, of which this one has no biases; the bottom's."""
    scale, shift, first, second, bottom = addresses(weights)
    return [scale, shift, first, 0, second, 0], bottom

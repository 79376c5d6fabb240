"""The residual sublayer with a nondeterministic stack on a CPU, by the compiled kernel."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from structattn.fast.residual_sublayers.reference import StackWeights
from structattn.operators.common.kernels import kernel_for, kernel_module
from structattn.operators.common.registration import Batching, refuse_double_backward, register
from structattn.operators.nondeterministic_stack.cpu import kernel_window, table_size

_ROW_UNIT, _HEADER = 16, 8  # as in common/small_matrix.h, and nondeterministic_stack/cpu/whole_sequence.h
_BATCHING = Batching(shared=("cotangent", "x", *StackWeights._fields))
Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


class StackOptions(NamedTuple):
    """Numbers of states and symbols; the window, 0 for none; 1 if vectors are exp; others as in ``StackSublayer``.

    One argument of the operator, because torch's cost of a call grows with the square of the number of arguments.
    """

    num_states: float
    num_symbols: float
    window: float
    exponential: float
    pop_offset: float
    epsilon: float
    dropped: float

    @property
    def steps(self) -> int | None:
        """Return the window, or None."""
        return int(self.window) or None


def _call(
    x: Tensor, bottom: Tensor, extras: tuple[Tensor | None, ...], kept: tuple[Tensor, ...], options: StackOptions
) -> Any:
    """Return the arguments of a call; ``extras`` are lengths and mask numbers."""
    sizes = *x.shape, int(options.num_states), int(options.num_symbols), len(bottom), kernel_window(options.steps)
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in (*extras, *kept)]
    return kernel_module().ResidualStackCall(
        sizes,
        bool(options.exponential),
        options.pop_offset,
        options.epsilon,
        int(options.dropped),
        [*addresses, kept[-1].shape[1]],
    )


def _contiguous(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    return tuple(None if tensor is None else tensor.contiguous() for tensor in tensors)


def _six(scale: Tensor, shift: Tensor | None, first: Tensor, second: Tensor) -> list[int]:
    """Return the addresses of the parameters that all sublayers have; this one has no biases."""
    addresses = [0 if tensor is None or tensor.numel() == 0 else tensor.data_ptr() for tensor in (shift, first, second)]
    return [scale.data_ptr(), addresses[0], addresses[1], 0, addresses[2], 0]


def _fake_backward(cotangent: Tensor, x: Tensor, *rest: Any) -> Gradients:
    weights = [x.new_empty(0) if weight is None else x.new_empty(weight.shape) for weight in rest[:5]]
    return x.new_empty(x.shape), *weights  # type: ignore[return-value]  # six


def stack_backward(
    cotangent: Tensor,
    x: Tensor,
    scale: Tensor,
    shift: Tensor | None,
    first: Tensor,
    second: Tensor,
    bottom: Tensor,
    lengths: Tensor | None,
    numbers: Tensor | None,
    rows: Tensor,
    readings: Tensor,
    tables: Tensor,
    options: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x and of the weights; that of a missing one is empty."""
    given = _contiguous(cotangent, x, scale, shift, first, second, bottom, lengths, numbers)
    cotangent, x, scale, shift, first, second, bottom, lengths, numbers = given  # type: ignore[assignment]
    results = _fake_backward(cotangent, x, scale, shift, first, second, bottom)
    kernel_for("residual_stack_backward", x.dtype)(
        _call(x, bottom, (lengths, numbers), (rows, readings, tables), StackOptions(*options)),
        x.data_ptr(),
        _six(scale, shift, first, second),
        bottom.data_ptr(),
        cotangent.data_ptr(),
        results[0].data_ptr(),
        _six(*results[1:5]),
        results[5].data_ptr(),
        torch.get_num_threads(),
    )
    return results


residual_stack_backward = register(
    "residual_stack_backward",
    fake=_fake_backward,
    gradient=refuse_double_backward("residual_stack", "CPU"),
    batching=_BATCHING,
)(stack_backward)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.options = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *output[1:])


def _gradient(ctx: Any, cotangent: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if cotangent is None:
        return (None,) * 9
    tensors = ctx.saved_tensors
    gradients = residual_stack_backward(cotangent, *tensors, ctx.options)
    found = (None if x is None else gradient for gradient, x in zip(gradients, tensors, strict=False))
    return (*found, None, None, None)


def _fake(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _, _, first, second, bottom, _, _, options = rest
    given = StackOptions(*options)
    batch, time, _ = x.shape
    kept = [x.new_empty(batch, time, -(-size // _ROW_UNIT) * _ROW_UNIT) for size in (first.shape[0], second.shape[1])]
    sizes = time, int(given.num_states), int(given.num_symbols), len(bottom), given.steps
    tables = x.new_empty(batch, _HEADER + table_size(*sizes), dtype=torch.float64)
    return x.new_empty(x.shape), kept[0], kept[1], tables


def stack_forward(
    x: Tensor,
    scale: Tensor,
    shift: Tensor | None,
    first: Tensor,
    second: Tensor,
    bottom: Tensor,
    lengths: Tensor | None,
    numbers: Tensor | None,
    options: list[float],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The output, and for the backward pass W_1 LayerNorm(x) and the readings, in padded rows, and the stack's tables.

    Args:
        x: (B, T, d), float32 or float64, checked.
        scale: of ``StackWeights``, as the next ones.
        shift: or None.
        first: (A + m, d).
        second: (d, Q S m).
        bottom: (m,), before its sigmoid.
        lengths: (B,) int64, or None.
        numbers: of ``Dropout``.
        options: see ``StackOptions``.
    """
    given = _contiguous(x, scale, shift, first, second, bottom, lengths, numbers)
    x, scale, shift, first, second, bottom, lengths, numbers = given  # type: ignore[assignment]
    y, *kept = _fake(*given, options)  # type: ignore[arg-type]  # x is not None
    kernel_for("residual_stack_forward", x.dtype)(
        _call(x, bottom, (lengths, numbers), tuple(kept), StackOptions(*options)),
        x.data_ptr(),
        _six(scale, shift, first, second),
        bottom.data_ptr(),
        y.data_ptr(),
        torch.get_num_threads(),
    )
    return y, *kept  # type: ignore[return-value]  # four


residual_stack_cpu = register(
    "residual_stack",
    fake=_fake,
    gradient=_gradient,
    save=_save,
    batching=Batching(shared=("x", *StackWeights._fields)),
)(stack_forward)

"""Registration of operators with torch.library, with their batching rule for ``torch.vmap``.

Legend: N the size of the mapped dimension, B the batch.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from structattn.operators.common.differentiation import autograd_kernel

Rule = Callable[..., Any]


@dataclass(frozen=True)
class Batching:
    """Names of the inputs of an operator in which the batch is not the first dimension.

    Args:
        second: it is the second one.
        broadcast: it is the first one, of size B or 1.
        shared: there is none. Where such an input is mapped, the operator is called N times.
        by_position: there is none, and the effect of the input on a sequence depends on the sequence's position in the
            batch. Where such an input is given, the operator is called N times.
    """

    second: Sequence[str] = ()
    broadcast: Sequence[str] = ()
    shared: Sequence[str] = ()
    by_position: Sequence[str] = ()


def batching_rule(operator: Rule, names: Sequence[str], batching: Batching) -> Rule:
    """Return a rule that calls the operator once, with a batch of N * B; inputs that are not mapped are expanded.

    Inputs of ``broadcast`` are expanded only if one of them is mapped. The batch must be the first dimension of every
    output. ``names`` are those of the inputs, in order.
    """

    def rule(info: Any, in_dims: tuple[Any, ...], *inputs: Any) -> tuple[Any, Any]:
        tensors = {name: x for name, x in zip(names, inputs, strict=True) if isinstance(x, Tensor)}
        mapped = {name: dim for name, dim in zip(names, in_dims, strict=True) if name in tensors and dim is not None}
        if any(name in mapped for name in batching.shared) or any(name in tensors for name in batching.by_position):
            return _one_by_one(operator, info.batch_size, [mapped.get(name) for name in names], inputs)
        may_stay = () if any(name in mapped for name in batching.broadcast) else batching.broadcast
        special = {*batching.second, *batching.broadcast, *batching.shared}
        first = next(name for name in tensors if name not in special)
        batch = tensors[first].movedim(mapped.get(first, 0), 0).shape[int(first in mapped)]
        for name, x in tensors.items():
            if name not in batching.shared and not (name in may_stay and len(x) == 1):
                at = int(name in batching.second)
                tensors[name] = _folded(x, mapped.get(name), at, info.batch_size, batch)
        outputs = operator(*(tensors.get(name, x) for name, x in zip(names, inputs, strict=True)))
        unfolded = _for_each(outputs, lambda x: x.view(info.batch_size, batch, *x.shape[1:]))
        return unfolded, _for_each(outputs, lambda _: 0)

    return rule


def _folded(x: Tensor, mapped: int | None, at: int, samples: int, batch: int) -> Tensor:
    """Join the mapped dimension of ``x`` with its batch, which is dimension ``at`` of the others."""
    x = x.unsqueeze(at) if mapped is None else x.movedim(mapped, at)
    return x.expand(*x.shape[:at], samples, batch, *x.shape[at + 2 :]).flatten(at, at + 1)


def _one_by_one(operator: Rule, samples: int, mapped: list[int | None], inputs: tuple[Any, ...]) -> tuple[Any, Any]:
    """Call the operator for each index of the mapped dimension and stack the outputs."""
    results = [
        operator(*(x if dim is None else x.select(dim, n) for x, dim in zip(inputs, mapped, strict=True)))
        for n in range(samples)
    ]
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    return tuple(torch.stack(same) for same in zip(*results, strict=True)), (0,) * len(results[0])


def _for_each(outputs: Any, function: Callable[[Tensor], Any]) -> Any:
    return function(outputs) if isinstance(outputs, Tensor) else tuple(function(output) for output in outputs)


_Result = TypeVar("_Result")
_Rule = Callable[..., Any]
_BATCH_FIRST = Batching()


def save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save all inputs, tensors or None, for the backward pass."""
    ctx.save_for_backward(*inputs)


def save_inputs_and_flag(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save all inputs, tensors or None but for the last, ``ctx.flag``."""
    *tensors, ctx.flag = inputs
    ctx.save_for_backward(*tensors)


def register(
    name: str,
    *,
    fake: _Rule,
    gradient: _Rule | None = None,
    save: _Rule | None = None,
    devices: str | Sequence[str] = "cpu",
    definition: _Rule | None = None,
    batching: Batching = _BATCH_FIRST,
) -> Callable[[Callable[..., _Result]], Callable[..., _Result]]:
    """Decorate a kernel: register it as ``torch.ops.structattn.<name>``, and return that operator.

    The schema comes from the kernel's annotations; its arguments have no defaults. ``torch.library.custom_op`` is not
    used, because it adds 60 µs to every call.

    Args:
        name: of the operator.
        fake: ``fake(*inputs)`` returns outputs of the right shapes, dtypes and strides with arbitrary values, for
            tracing.
        gradient: ``gradient(ctx, *output_gradients)`` returns the gradient of each input; see
            ``refuse_double_backward``. None: the operator is not differentiable.
        save: ``save(ctx, inputs, output)`` saves what ``gradient`` needs; None saves nothing.
        devices: the types of device that the kernel runs on; "default" stands for all.
        definition: ``definition(*inputs)`` computes the outputs by operations that torch can differentiate. It runs in
            place of the kernel in forward-mode differentiation, which is refused where it is None.
        batching: which dimension of the inputs is the batch, for ``torch.vmap``; see ``batching_rule``.
    """

    def decorate(kernel: Callable[..., _Result]) -> Callable[..., _Result]:
        qualified = f"structattn::{name}"
        torch.library.define(qualified, torch.library.infer_schema(kernel, mutates_args=()))
        torch.library.impl(qualified, devices, kernel)
        torch.library.register_fake(qualified, fake)
        operator: Callable[..., _Result] = getattr(torch.ops.structattn, name)
        torch.library.impl(qualified, "Autograd", autograd_kernel(name, operator, gradient, save, definition))
        names = list(inspect.signature(kernel).parameters)
        torch.library.register_vmap(qualified, batching_rule(operator, names, batching))
        return operator

    return decorate


def refuse_double_backward(operator: str, processor: Literal["CPU", "GPU"]) -> _Rule:
    """Return a gradient for a backward kernel that raises NotImplementedError."""

    def refuse(ctx: Any, *cotangents: Tensor) -> None:
        raise NotImplementedError(
            f"{operator}: double backward is not supported by the {processor} kernel; use implementation='reference'"
        )

    return refuse

"""One step of a superposition stack: in one launch on a GPU where no derivative is asked for, else by definition."""

import torch
from torch import Tensor

from structattn.operators.common.differentiation import in_forward_mode, transforms_active
from structattn.operators.common.gpu import gpu_kernels, launch, why_no_gpu_kernel
from structattn.operators.common.registration import register
from structattn.operators.superposition_stack import reference
from structattn.support.shapes import Float

_BLOCK = 1024  # numbers of the next stack for each program


def superposition_step(
    stack: Float[Tensor, "batch rows vector"],
    action: Float[Tensor, "batch 3"],
    value: Float[Tensor, "batch vector"],
    depth: int | None = None,
) -> Float[Tensor, "batch next vector"]:
    """Return the stack after one more step, as ``reference.superposition_step`` defines it. Cost: O(R * m)."""
    if not _runs_as_kernel(stack, action, value):
        return reference.superposition_step(stack, action, value, depth)
    rows = stack.shape[1] + 1
    return superposition_step_gpu(stack, action, value, rows if depth is None else min(rows, depth), False)


def endless_superposition_step(
    stack: Float[Tensor, "batch rows vector"], action: Float[Tensor, "batch 3"], value: Float[Tensor, "batch vector"]
) -> Float[Tensor, "batch rows+1 vector"]:
    """Return the stack after one more step, as ``reference.endless_superposition_step`` defines it. Cost: O(R * m)."""
    if not _runs_as_kernel(stack, action, value) or stack.shape[1] == 0:
        return reference.endless_superposition_step(stack, action, value)
    return superposition_step_gpu(stack, action, value, stack.shape[1] + 1, True)


def _runs_as_kernel(*tensors: Tensor) -> bool:
    derivative = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    if derivative or transforms_active() or in_forward_mode():
        return False
    return why_no_gpu_kernel(tensors[0].device.type) is None


def _empty_next(stack: Tensor, action: Tensor, value: Tensor, rows: int, endless: bool) -> Tensor:
    dtype = torch.promote_types(torch.promote_types(stack.dtype, action.dtype), value.dtype)
    return stack.new_empty(stack.shape[0], rows, stack.shape[2], dtype=dtype)


@register("superposition_step_gpu", devices=("cpu", "cuda"), fake=_empty_next)
def superposition_step_gpu(stack: Tensor, action: Tensor, value: Tensor, rows: int, endless: bool) -> Tensor:
    """The next stack, of that many rows, computed in float32 or better; see ``step`` in step_gpu_kernel.py."""
    result = _empty_next(stack, action, value, rows, endless)
    launch(
        gpu_kernels("superposition_stack.gpu.step_gpu_kernel").step,
        (-(-result[:1].numel() // _BLOCK), len(result)),
        (stack.contiguous(), action.contiguous(), value.contiguous(), result),
        *stack.shape[1:2],
        *result.shape[1:],
        **{"BLOCK": _BLOCK, "ENDLESS": endless, "DOUBLE": result.dtype == torch.float64},
    )
    return result

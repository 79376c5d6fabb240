"""Products of large float32 matrices on a CPU, by a kernel that on some processors is faster than torch's.

``product`` and ``linear_product`` compute what ``torch.addmm`` and ``torch.nn.functional.linear`` compute, to rounding.
Torch's products use half of the width of the vectors of AMD processors with AVX-512;
on Intel's they are faster.
"""

import functools
import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.operators.common.differentiation import in_forward_mode, transforms_active
from structattn.operators.common.kernels import compiled_kernels, has_kernel, kernel_module
from structattn.support.devices import processor_vendor

LEAST_PRODUCTS, LEAST_SIDE = 4_000_000, 32  # below, a call or the layout takes longer than the kernel saves


def linear_product(
    x: Float[Tensor, "*batch inputs"], weight: Float[Tensor, "outputs inputs"], bias: Tensor | None = None
) -> Float[Tensor, "*batch outputs"]:
    """Return x W^T + b; differentiable to any order. Cost: O(batch * inputs * outputs)."""
    if torch.compiler.is_compiling() or x.numel() * len(weight) < LEAST_PRODUCTS:
        return F.linear(x, weight, bias)
    fit = are_plain(x, weight, bias) and agree(x, weight, bias)
    if fit and _is_large(math.prod(x.shape[:-1]), x.shape[-1], len(weight)):
        rows = x.reshape(-1, x.shape[-1])
        return _differentiable_product(rows, weight.t(), bias).view(*x.shape[:-1], len(weight))
    return F.linear(x, weight, bias)


def product(a: Float[Tensor, "rows terms"], b: Float[Tensor, "terms columns"]) -> Float[Tensor, "rows columns"]:
    """Return a b; differentiable to any order. Cost: O(rows * terms * columns)."""
    if are_plain(a, b) and a.shape[1:] == b.shape[:1] and _is_large(len(a), len(b), b.shape[1]):
        return _differentiable_product(a, b, None)
    return a @ b


def are_plain(*tensors: Tensor | None) -> bool:
    """Return whether a kernel can take the addresses of these tensors, and nothing has to see torch's own calls.

    They are float32 on a CPU, of no other class, and there is no compiler, autocast, transform or mode.
    """
    if torch.compiler.is_compiling():
        return False
    for tensor in tensors:
        if tensor is not None and type(tensor) is not Tensor and type(tensor) is not nn.Parameter:
            return False
        if tensor is not None and not (tensor.dtype == torch.float32 and tensor.is_cpu and _is_dense(tensor)):
            return False
    modes = (
        torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack() or torch._C._get_tracing_state()
    )
    return not (modes or torch.is_autocast_enabled("cpu") or transforms_active() or in_forward_mode())


def _is_dense(tensor: Tensor) -> bool:
    batched = torch._C._functorch.is_legacy_batchedtensor(tensor)  # by ``is_grads_batched``
    return tensor.layout == torch.strided and not tensor.is_neg() and not batched


def agree(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Return whether the shapes are those of a linear layer and its input."""
    if weight.dim() != 2 or x.shape[-1:] != weight.shape[1:]:
        return False
    return bias is None or bias.shape == weight.shape[:1]


def _is_large(rows: int, terms: int, columns: int) -> bool:
    enough = rows * terms * columns >= LEAST_PRODUCTS and min(rows, terms, columns) >= LEAST_SIDE
    return enough and has_product_kernel() and is_faster_than_torch()


def has_product_kernel() -> bool:
    """Return whether there is a kernel for the vectors of this processor."""
    kernels = compiled_kernels()
    return kernels is not None and kernels[0] != "baseline" and has_kernel("matrix_product_float32")


@functools.cache
def is_faster_than_torch() -> bool:
    """Return whether the kernel is faster than torch's products: MKL's are made for Intel's processors."""
    mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]  # torch's
    return not (mkl and processor_vendor() == "GenuineIntel")


def _differentiable_product(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    if not (torch.is_grad_enabled() and torch._C._any_requires_grad(a, b, bias)):
        return _product(a, b, bias)
    found: Tensor = _Product.apply(a, b, bias)  # type: ignore[no-untyped-call]  # torch's
    return found


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(a, b)
        return _product(a, b, bias)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        of_a, of_b, of_bias = ctx.needs_input_grad
        return (
            product(cotangent, b.t()) if of_a else None,
            product(a.t(), cotangent) if of_b else None,
            cotangent.sum(0) if of_bias else None,
        )


def _product(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    """Return a b + bias by the kernel."""
    a, b = (each if 1 in each.stride() else each.contiguous() for each in (a, b))
    bias = None if bias is None else bias.contiguous()
    y = a.new_empty(len(a), b.shape[1])
    kernel_module().matrix_product_float32(
        a.data_ptr(),
        b.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        y.data_ptr(),
        (*a.shape, b.shape[1]),
        (*a.stride(), *b.stride()),
        torch.get_num_threads(),
    )
    return y

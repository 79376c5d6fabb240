"""Operations on all tensors of a list in one call: between small tensors, calls take longer than the arithmetic.

Sums are the same for any number of threads. Where tensors are not for the kernel, on another device for instance, torch
does the work.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter

from structattn.operators.common.kernels import has_kernel, kernel_for

__all__ = ["AdamWOptions", "TensorList", "adamw_", "clip_gradients", "tensor_list", "total_norm"]


class TensorList(NamedTuple):
    """Tensors of one dtype for the kernel; they must live as long as this is used.

    Args:
        addresses: of their numbers.
        sizes: the count of numbers of each tensor.
        dtype: float32 or float64.
    """

    addresses: list[int]
    sizes: list[int]
    dtype: torch.dtype


def tensor_list(tensors: Sequence[Tensor]) -> TensorList | None:
    """Return tensors for the kernel; None where it cannot run.

    It is for contiguous float32 or float64 tensors of one dtype on a CPU that are not distributed or of another
    subclass of Tensor, if there is one at least.
    """
    dtypes = {x.dtype for x in tensors}
    if dtypes not in ({torch.float32}, {torch.float64}) or not has_kernel("foreach_norm_float32"):
        return None
    if not {type(x) for x in tensors} <= {Tensor, Parameter} or not all(x.is_cpu for x in tensors):
        return None
    if not all(map(Tensor.is_contiguous, tensors)):
        return None
    return TensorList(list(map(Tensor.data_ptr, tensors)), list(map(Tensor.numel, tensors)), dtypes.pop())


def total_norm(tensors: Sequence[Tensor]) -> Float[Tensor, ""]:
    """Return the root of the sum of the squares of all numbers; by the kernel, it is summed in float64.

    By torch's operations, it is distributed as the tensors are.
    """
    together = tensor_list(tensors)
    if together is None:
        return torch.nn.utils.get_total_norm(tensors)
    norm = kernel_for("foreach_norm", together.dtype)(together.addresses, together.sizes, torch.get_num_threads())
    return torch.tensor(norm, dtype=torch.float64)


def clip_gradients(parameters: Sequence[Tensor], max_norm: float, norm: Float[Tensor, ""]) -> None:
    """Multiply gradients by max_norm / (norm + 1e-6) where that is less than 1, as ``torch.nn.utils`` does.

    Args:
        parameters: those without a gradient are left out.
        max_norm: the largest norm.
        norm: of all gradients, ``total_norm``.
    """
    together = tensor_list([parameter.grad for parameter in parameters if parameter.grad is not None])
    if together is None:
        torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    elif (factor := max_norm / (norm.item() + 1e-6)) < 1:
        scale = kernel_for("foreach_scale", together.dtype)
        scale(together.addresses, together.sizes, factor, torch.get_num_threads())


class AdamWOptions(NamedTuple):
    """The numbers of AdamW, as those of ``torch.optim.AdamW``."""

    learning_rate: float
    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float


def adamw_(
    parameters: TensorList,
    gradients: TensorList,
    means: TensorList,
    squares: TensorList,
    steps: TensorList,
    options: AdamWOptions,
) -> None:
    """Update parameters in place by AdamW (Loshchilov & Hutter 2019, algorithm 2).

    Args:
        parameters: what is updated.
        gradients: of the same sizes and dtype, as the next two.
        means: the averages of gradients; updated in place.
        squares: the averages of squared gradients; updated in place.
        steps: the number of updates of each tensor so far, float32 without axes; increased in place.
        options: rates.

    Raises:
        ValueError: tensors differ in their count, sizes or dtype.
    """
    others = {"gradients": gradients, "means": means, "squares": squares}
    unlike = [name for name, tensors in others.items() if tensors[1:] != parameters[1:]]
    if unlike:
        raise ValueError(f"{' and '.join(unlike)} are not of the sizes and the dtype of the parameters")
    if steps.sizes != [1] * len(parameters.sizes) or steps.dtype != torch.float32:
        raise ValueError("steps are not float32 numbers, one for each parameter")
    kernel_for("foreach_adamw", parameters.dtype)(
        parameters.addresses,
        gradients.addresses,
        means.addresses,
        squares.addresses,
        steps.addresses,
        parameters.sizes,
        list(options),
        torch.get_num_threads(),
    )

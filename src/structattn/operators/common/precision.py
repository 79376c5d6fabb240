"""Dtypes in which operators compute and return."""

import torch
from torch import Tensor

from structattn.operators.common.checks import require_alike

_LOW = (torch.float16, torch.bfloat16)


def computing_precision(**tensors: Tensor) -> tuple[list[Tensor], torch.dtype]:
    """Return the tensors in float32 or better, and the dtype of the result.

    Under autocast, float16 and bfloat16 become float32 and the result stays in float32, as for the operators that
    torch keeps in float32 (softmax, cumsum, ...). Otherwise all tensors must have one dtype; float16 and bfloat16 are
    computed in float32, and the result has the caller's dtype.

    Raises:
        ValueError: a tensor is not floating-point, or they differ in dtype or device.
    """
    first = next(iter(tensors.values()))
    if torch.is_autocast_enabled(first.device.type):
        raised = {name: tensor.float() if tensor.dtype in _LOW else tensor for name, tensor in tensors.items()}
        require_alike(**raised)
        return list(raised.values()), next(iter(raised.values())).dtype
    require_alike(**tensors)
    if first.dtype in _LOW:
        return [tensor.float() for tensor in tensors.values()], first.dtype
    return list(tensors.values()), first.dtype

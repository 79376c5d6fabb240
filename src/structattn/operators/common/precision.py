"""In which precision an operator computes, and in which it answers."""

import torch
from torch import Tensor

from structattn.operators.common.checks import require_alike

_LOW = (torch.float16, torch.bfloat16)


def computing_precision(**tensors: Tensor) -> tuple[list[Tensor], torch.dtype]:
    """The tensors in float32 or better, and the dtype of the answer.

    Under autocast, float16 and bfloat16 become float32 and the answer stays in float32, as for the operators that
    torch keeps in float32 (softmax, cumsum, ...). Elsewhere the tensors must be alike; the two low precisions are
    computed in float32, and the answer has the caller's dtype.

    Raises:
        ValueError: a tensor is not floating, or they differ in dtype or device.
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

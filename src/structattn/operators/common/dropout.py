"""Dropout, by a quicker way than torch's own on a CPU."""

import torch
from torch import Tensor
from torch.nn import functional as F

_STEPS = 1 << 16


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """``x`` with each element zeroed with probability ``rate`` and the others divided by 1 - rate, in training.

    torch draws one number for each element one after another, which on a CPU costs more than the layers around it. Here
    a 64-bit number of torch's global generator serves four elements, so that ``rate`` is rounded to a multiple of
    2^-16 (0.1 to 0.100006); the division is by what the rounding left.
    """
    if not training or rate == 0 or x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, rate, training)
    dropped = round(rate * _STEPS)
    count = x.numel()
    numbers = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    kept = numbers.view(torch.int16)[:count].view(x.shape) >= dropped - _STEPS // 2
    return x * kept.to(x.dtype).mul_(_STEPS / (_STEPS - dropped))

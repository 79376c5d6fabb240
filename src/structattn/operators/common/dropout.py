"""Dropout that is faster than torch's on a CPU."""

import torch
from torch import Tensor
from torch.nn import functional as F

_STEPS = 1 << 16


def dropout(x: Tensor, rate: float) -> Tensor:
    """Zero each element with probability ``rate`` and divide the others by 1 - rate.

    torch draws one random number per element, which on a CPU costs more than the layers around it. Here one 64-bit
    number from torch's global generator serves four elements, so ``rate`` is rounded to a multiple of 2^-16 (0.1 to
    0.100006), and the kept elements are divided by 1 minus the rounded rate.
    """
    if rate == 0 or x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, rate)
    dropped = round(rate * _STEPS)
    count = x.numel()
    numbers = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    kept = numbers.view(torch.int16)[:count].view(x.shape) >= dropped - _STEPS // 2
    return x * kept.to(x.dtype).mul_(_STEPS / (_STEPS - dropped))

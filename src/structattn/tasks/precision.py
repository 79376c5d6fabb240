"""The precision of the products of a trained model: that of its weights, or bfloat16."""

from typing import Final, Literal, get_args

import torch

from structattn.support.devices import slow_bf16
from structattn.support.errors import UsageError

Precision = Literal["float32", "bf16"]
PRECISIONS: Final[tuple[Precision, ...]] = get_args(Precision)


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Return the context of forward passes: ``torch.autocast`` for ``bf16``, without it for ``float32``."""
    return torch.autocast(device.type, torch.bfloat16, precision == "bf16")


def require_precision(precision: str, device: torch.device) -> None:
    """Check that a precision is known, and no slower than float32.

    Raises:
        UsageError: it is not, or the device has no instructions for it.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"precision {precision!r} is unknown; expected one of {', '.join(PRECISIONS)}")
    if precision == "bf16" and (reason := slow_bf16(device)):
        raise UsageError(f"precision 'bf16' is slower than float32 here: {reason}; expected 'float32'")

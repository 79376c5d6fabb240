"""The device and the size of a model, the processor's name and features from /proc/cpuinfo, precisions of products."""

import functools
import os
import platform
from pathlib import Path
from typing import Final, Literal, get_args

import torch
from torch import nn

from structattn.support.errors import SettingsError, UsageError

_DESCRIPTION = Path("/proc/cpuinfo")


@functools.cache
def processor_name() -> str:
    """Return the name of the processor; its architecture where the system does not tell."""
    return _first_processor().get("model name") or platform.processor() or platform.machine()


@functools.cache
def processor_flags() -> frozenset[str]:
    """Return the feature flags as named by Linux, such as ``avx512_bf16``; none on other systems."""
    described = _first_processor()
    return frozenset(described.get("flags", described.get("Features", "")).split())  # x86 or ARM


def _first_processor() -> dict[str, str]:
    if not _DESCRIPTION.exists():
        return {}
    first = _DESCRIPTION.read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    fields = (line.partition(":") for line in first.split("\n"))
    return {name.strip(): value.strip() for name, _, value in fields}


_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # the last is that of ARM
_FP16_FLAGS = {"avx512_fp16", "amx_fp16"}
_LIMITS_WITHOUT_BF16 = {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"}


def count_parameters(module: nn.Module) -> int:
    """Return the number of parameters of a module; a shared one counts once."""
    return sum(parameter.numel() for parameter in module.parameters())


def default_device() -> torch.device:
    """Return the first GPU if torch finds one, otherwise the CPU."""
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def named_device(name: str | torch.device) -> torch.device:
    """Return a device on which tensors can be; that of ``default_device`` for ``auto``.

    Raises:
        UsageError: there is no such device.
    """
    if name == "auto":
        return default_device()
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = (str(error).strip() or "unknown").splitlines()[0]
        raise UsageError(f"device {name!r} cannot be used: {reason}; expected 'auto', 'cpu' or 'cuda'") from None
    return device


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the parameters of a model."""
    return next(model.parameters()).device


def device_name(device: torch.device) -> str:
    """Return the name of the GPU, or of the processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()


def fast_autocast_dtypes(device: torch.device) -> set[torch.dtype]:
    """Return the dtypes of 16 bits for whose matrix products the device has instructions.

    Without these instructions, torch converts every product: with AVX2 alone, bfloat16 is tens of times slower than
    float32, with AVX-512 twice. oneDNN computes the products of a CPU, so its limit ``ONEDNN_MAX_CPU_ISA`` counts.
    """
    if device.type == "cuda":
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return {torch.float16, torch.bfloat16} if has_bf16 else {torch.float16}
    return _fast_on_cpu() if device.type == "cpu" else set()


def slow_bf16(device: torch.device) -> str | None:
    """Return why bfloat16 is slow on a device; None if it is fast."""
    if torch.bfloat16 in fast_autocast_dtypes(device):
        return None
    return f"{device_name(device)} has no bfloat16 instructions"


def require_fast(precision: str, device: torch.device) -> None:
    """Check that training in this precision is not slower than in float32.

    Raises:
        SettingsError: it is ``bf16`` and the device has no instructions for it.
    """
    if precision == "bf16" and (reason := slow_bf16(device)):
        raise SettingsError(
            f"training.precision=bf16: {reason}, so training would be several times slower than in float32; "
            "expected training.precision=float32, in a new run, or a device that has them"
        )


def _fast_on_cpu() -> set[torch.dtype]:
    if not torch._C._has_mkldnn:
        return set()
    flags, onednn = processor_flags(), torch.ops.mkldnn
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "")).upper()
    fast = set()
    if _BF16_FLAGS & flags and limit not in _LIMITS_WITHOUT_BF16 and onednn._is_mkldnn_bf16_supported():
        fast.add(torch.bfloat16)
    if _FP16_FLAGS & flags and onednn._is_mkldnn_fp16_supported():
        fast.add(torch.float16)
    return fast


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

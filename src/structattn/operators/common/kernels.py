"""Finds the compiled kernels for this processor."""

import functools
import importlib
import platform
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch

_INSTRUCTION_SETS = {
    "avx512": {"avx512f", "avx512vl", "avx512dq", "fma"},
    "avx2": {"avx2", "fma"},
    "baseline": set[str](),
}


def _processor_flags() -> set[str]:
    """The processor's feature flags as Linux names them; empty elsewhere, where the baseline is used."""
    information = Path("/proc/cpuinfo")
    if platform.machine() not in {"x86_64", "AMD64"} or not information.exists():
        return set()
    for line in information.read_text(errors="replace").split("\n"):
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()


@functools.cache
def compiled_kernels() -> tuple[str, ModuleType] | None:
    """The instruction set in use and the module built for it; None where the extension was not built."""
    flags = _processor_flags()
    for name, needed in _INSTRUCTION_SETS.items():
        if needed <= flags:
            try:
                return name, importlib.import_module(f"structattn.operators.common._kernels_{name}")
            except ModuleNotFoundError:
                continue
    return None


def kernel_for(name: str, dtype: torch.dtype) -> tuple[ModuleType, Callable[..., None]]:
    """The module, and its function of that name for numbers of that dtype.

    Raises:
        RuntimeError: the extension was not built, or has no function for the dtype.
    """
    extension = compiled_kernels()
    if extension is None or dtype not in (torch.float32, torch.float64):
        raise RuntimeError(f"{name}: got {dtype}; expected float32 or float64, and the compiled extension")
    return extension[1], getattr(extension[1], f"{name}_{str(dtype).removeprefix('torch.')}")

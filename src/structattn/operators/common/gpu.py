"""The door to Triton, which not everybody has: whether its kernels can run here, and how one of them is started."""

import functools
import importlib
import importlib.util
import os
from types import ModuleType
from typing import Any

import torch

from structattn.operators.common.compilation import constant_when_compiled


@functools.cache
def _triton_missing() -> bool:
    return importlib.util.find_spec("triton") is None


def interpreted() -> bool:
    """Whether Triton interprets its kernels in Python, on tensors of any device: slow, and meant for tests.

    Triton itself looks at ``TRITON_INTERPRET`` when it is imported and when a kernel is defined, so the variable must
    be set before.
    """
    return os.environ.get("TRITON_INTERPRET", "0").lower() in {"1", "true", "on", "yes"}


@constant_when_compiled
def why_no_gpu_kernel(device_type: str) -> str | None:
    """Why no Triton kernel can run on tensors of this type of device; None where one can."""
    if device_type != "cuda" and not (device_type == "cpu" and interpreted()):
        return f"the tensors are on {device_type}" + (
            "" if torch.cuda.is_available() else ", and no CUDA device is here"
        )
    if _triton_missing():
        return "Triton is not installed"
    return None


def gpu_kernels(operator: str) -> ModuleType:
    """The operator's module of Triton functions, imported at its first use."""
    return importlib.import_module(f"structattn.operators.{operator}.gpu_kernel")


def launch(
    kernel: Any, grid: tuple[int, ...], tensors: tuple[torch.Tensor, ...], *sizes: int, **constants: int
) -> None:
    """Run ``kernel(*tensors, *sizes, **constants)`` for every program of the grid, on the tensors' device.

    ``constants`` are known when the kernel is compiled; ``num_warps`` may be among them. There is one stage: no load
    may be moved ahead of a barrier for the sake of a pipeline.
    """
    if 0 in grid:
        return
    with torch.cuda.device(tensors[0].device if tensors[0].is_cuda else -1):
        kernel[grid](*tensors, *sizes, **constants, num_stages=1, enable_fp_fusion=True)


def power_of_two(number: int, largest: int | None = None) -> int:
    """The least power of two that is at least ``number``, but no more than ``largest``, itself a power of two."""
    least = 1 << max(number - 1, 0).bit_length()
    return least if largest is None else min(least, largest)


def require_addressable(operator: str, numbers: int) -> None:
    """Raise ValueError where one sequence's tables hold more numbers than the kernels' 32 bits can tell apart."""
    if numbers >= 2**31:
        raise ValueError(
            f"{operator}: {numbers} numbers in the tables of one sequence; a GPU kernel takes fewer than 2^31"
        )

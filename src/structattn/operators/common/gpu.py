"""Availability and launching of Triton kernels; Triton itself is imported only when one is launched."""

import functools
import importlib
import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import torch

from structattn.operators.common.checks import is_autocast
from structattn.operators.common.differentiation import constant_when_compiled

MAX_PROGRAMS = 65_535  # in the second and third dimension of a grid


@functools.cache
def _triton_missing() -> bool:
    return importlib.util.find_spec("triton") is None


def interpreted() -> bool:
    """Whether Triton interprets its kernels in Python, on tensors of any device: slow, for tests only.

    Triton checks ``TRITON_INTERPRET`` when it is imported and when a kernel is defined, so the variable must be set
    before.
    """
    return os.environ.get("TRITON_INTERPRET", "0").lower() in {"1", "true", "on", "yes"}


@constant_when_compiled
def why_no_gpu_kernel(device_type: str) -> str | None:
    """Return why no Triton kernel can run on this type of device; None if one can."""
    if device_type != "cuda" and not (device_type == "cpu" and interpreted()):
        return f"the tensors are on {device_type}" + (
            "" if torch.cuda.is_available() else ", and no CUDA device is available"
        )
    if _triton_missing():
        return "Triton is not installed"
    return None


def gpu_kernels(module: str) -> ModuleType:
    """Import and return a module of Triton kernels, named from the package of the operators on."""
    return importlib.import_module(f"structattn.operators.{module}")


def launch(
    kernel: Any, grid: tuple[int, ...], tensors: tuple[torch.Tensor, ...], *sizes: int, **constants: int | float | str
) -> None:
    """Run ``kernel(*tensors, *sizes, **constants)`` for every program of the grid, on the tensors' device.

    ``constants`` are compile-time constants and may include ``num_warps`` and ``num_stages``. num_stages is 1 unless
    given: pipelining must not move a load ahead of a barrier.

    Raises:
        ValueError: the grid has more programs in its second or third dimension, such as sequences, than CUDA allows.
    """
    if 0 in grid:
        return
    if max(grid[1:], default=0) > MAX_PROGRAMS:
        raise ValueError(
            f"{kernel.__name__}: a grid of {' x '.join(map(str, grid))} programs; CUDA allows {MAX_PROGRAMS} in a row. "
            "Compute the batch in parts"
        )
    with torch.cuda.device(tensors[0].device if tensors[0].is_cuda else -1):
        kernel[grid](*tensors, *sizes, **({"num_stages": 1} | constants), enable_fp_fusion=True)


class Lane:
    """Kernels that run in order, beside those of other lanes; on a CPU, everything runs at once.

    A lane is torch's current stream, or, if ``aside``, a stream of its own.
    """

    def __init__(self, device: torch.device, *, aside: bool = False) -> None:
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device) if aside else torch.cuda.current_stream(device)  # type: ignore[no-untyped-call]

    def after(self, *marks: torch.cuda.Event | None) -> AbstractContextManager[object]:
        """Return a context in which kernels are added to this lane, after what was marked."""
        if self._stream is None:
            return nullcontext()
        for mark in marks:
            if mark is not None:
                self._stream.wait_event(mark)
        return torch.cuda.stream(self._stream)

    def mark(self) -> torch.cuda.Event | None:
        """Return a mark of everything that was added so far."""
        return None if self._stream is None else self._stream.record_event()


@constant_when_compiled
def _products_in_tf32() -> bool:
    return torch.get_float32_matmul_precision() != "highest"


def tf32_allowed(device: torch.device) -> bool:
    """Return whether products of float32 numbers may be rounded to TF32, as torch's own under the caller's settings."""
    return is_autocast(device) or _products_in_tf32()


def dot_precision(dtype: torch.dtype, tf32: bool) -> str:
    """Return the ``input_precision`` of Triton's dot: three products of TF32 parts are as good as one of float32."""
    if dtype == torch.float64 or interpreted():
        return "ieee"
    return "tf32" if tf32 else "tf32x3"


def power_of_two(number: int, largest: int | None = None) -> int:
    """Return the least power of two that is at least ``number``, limited to ``largest``, itself a power of two."""
    least = 1 << max(number - 1, 0).bit_length()
    return least if largest is None else min(least, largest)


def require_addressable(operator: str, numbers: int) -> None:
    """Raise ValueError if one sequence's tables have more elements than 32-bit offsets can address."""
    if numbers >= 2**31:
        raise ValueError(
            f"{operator}: the tables of one sequence have {numbers} elements; a GPU kernel supports fewer than 2^31"
        )

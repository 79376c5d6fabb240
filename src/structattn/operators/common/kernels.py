"""The compiled kernels for this processor, and how they are called."""

import functools
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType

import torch
from torch import Tensor

from structattn.operators.common.differentiation import transforms_active
from structattn.support.devices import processor_flags

# From the newest to the oldest, with the processor flags that they need.
INSTRUCTION_SETS = {
    "avx512": {"avx512f", "avx512vl", "avx512dq", "fma"},
    "avx2": {"avx2", "fma"},
    "baseline": set[str](),
}


@functools.cache
def compiled_kernels() -> tuple[str, ModuleType] | None:
    """Return the instruction set in use and the module built for it; None if the extension was not built."""
    flags = processor_flags()
    for name, needed in INSTRUCTION_SETS.items():
        if needed <= flags:
            try:
                return name, importlib.import_module(f"structattn.operators.common._kernels_{name}")
            except ModuleNotFoundError:
                continue
    return None


@functools.cache
def kernel_module() -> ModuleType:
    """Return the compiled extension.

    Raises:
        RuntimeError: it was not built; the public functions check this first.
    """
    extension = compiled_kernels()
    if extension is None:
        raise RuntimeError("the compiled extension is not installed")
    return extension[1]


@functools.cache
def has_kernel(name: str) -> bool:
    """Whether the extension is installed and has this function; an extension built before the function has not."""
    extension = compiled_kernels()
    return extension is not None and hasattr(extension[1], name)


@functools.cache
def kernel_for(name: str, dtype: torch.dtype) -> Callable[..., None]:
    """Return the compiled function of this name for float32 or float64.

    Raises:
        RuntimeError: the extension was not built, or has no function for the dtype.
    """
    if dtype not in (torch.float32, torch.float64):
        raise RuntimeError(f"{name}: got {dtype}; expected float32 or float64")
    function: Callable[..., None] = getattr(kernel_module(), f"{name}_{str(dtype).removeprefix('torch.')}")
    return function


def run_kernel(name: str, dtype: torch.dtype, tensors: Sequence[Tensor | None], *sizes: int) -> None:
    """Call a compiled kernel with the addresses of contiguous tensors (0 for None), sizes and the number of threads.

    Inputs that are not contiguous are copied; outputs must be contiguous.
    """
    given = contiguous(*tensors)
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in given]
    kernel_for(name, dtype)(*addresses, *sizes, torch.get_num_threads())


def contiguous(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return tensors in the layout and of the class that kernels take, those in another layout copied."""
    return tuple(None if tensor is None else tensor.contiguous().as_subclass(Tensor) for tensor in tensors)


def contiguous_rows(tensor: Tensor) -> Tensor:
    """Return the tensor with a contiguous last axis, copied only where it has none."""
    return tensor if tensor.stride(-1) == 1 or tensor.shape[-1] <= 1 else tensor.contiguous()


def strided_view(tensor: Tensor | None) -> tuple[int, ...]:
    """Return the address and the first three strides of a tensor with four axes; zeros for None and other tensors."""
    return (0, 0, 0, 0) if tensor is None or tensor.dim() < 4 else (tensor.data_ptr(), *tensor.stride()[:3])


def can_index_rows(*tensors: Tensor) -> bool:
    """Whether a compiled kernel can take rows by index: on a CPU, in float32 or float64, and without derivatives."""
    differentiated = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if differentiated or torch.compiler.is_compiling() or transforms_active():
        return False
    fits = all(tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64) for tensor in tensors)
    return fits and compiled_kernels() is not None

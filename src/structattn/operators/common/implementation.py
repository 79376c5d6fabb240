"""Which implementation of an operator runs: a pure function of what was asked for, the device and what is installed."""

import logging
from typing import Literal

import torch

from structattn.operators.common.compilation import constant_when_compiled
from structattn.operators.common.gpu import why_no_gpu_kernel
from structattn.operators.common.kernels import compiled_kernels
from structattn.support.errors import ImplementationUnavailableError

Implementation = Literal["auto", "reference", "cpu", "gpu"]

_logger = logging.getLogger("structattn")
_told: set[tuple[str, str]] = set()


def chosen_implementation(
    operator: str, implementation: Implementation, device: torch.device, *, gpu_kernel: bool = False
) -> str:
    """Name the implementation to run; ``auto`` takes the kernel where it can run, and says once what it took.

    Args:
        operator: its name, for messages.
        implementation: what was asked for.
        device: where the tensors are.
        gpu_kernel: whether the operator has a kernel for GPUs.

    Raises:
        ValueError: ``implementation`` is none of the known words.
        ImplementationUnavailableError: the one asked for cannot run here.
    """
    if implementation == "reference":
        return "reference"
    missing = {"cpu": _why_not_cpu(device), "gpu": _why_not_gpu(device, gpu_kernel)}
    if implementation in missing:
        if missing[implementation]:
            reason = missing[implementation]
            raise ImplementationUnavailableError(f"{operator}: implementation {implementation!r} cannot run: {reason}")
        return implementation
    if implementation != "auto":
        raise ValueError(f"implementation={implementation!r}; expected 'auto', 'reference', 'cpu' or 'gpu'")
    kernel = "cpu" if device.type == "cpu" else "gpu"
    choice = "reference" if missing[kernel] else kernel
    if (operator, choice) not in _told and not torch.compiler.is_compiling():
        _told.add((operator, choice))
        _logger.info("%s runs as %r%s", operator, choice, f" because {missing[kernel]}" if missing[kernel] else "")
    return choice


@constant_when_compiled
def _extension_missing() -> bool:
    return compiled_kernels() is None


def _why_not_cpu(device: torch.device) -> str | None:
    if device.type != "cpu":
        return f"the tensors are on {device.type}"
    if _extension_missing():
        return "the compiled extension is not installed"
    return None


def _why_not_gpu(device: torch.device, gpu_kernel: bool) -> str | None:
    if not gpu_kernel:
        return "it has no kernel for GPUs"
    return why_no_gpu_kernel(device.type)

"""Choice of an operator's implementation from the argument, the device and what is installed."""

import logging
from typing import Literal

import torch

from structattn.operators.common.differentiation import constant_when_compiled
from structattn.operators.common.gpu import why_no_gpu_kernel
from structattn.operators.common.kernels import compiled_kernels
from structattn.support.errors import ImplementationUnavailableError

Implementation = Literal["auto", "reference", "cpu", "gpu"]

_logger = logging.getLogger("structattn")
_logged: set[tuple[str, str]] = set()


def chosen_implementation(
    operator: str, implementation: Implementation, device: torch.device, *, gpu_kernel: bool = False
) -> str:
    """Return the implementation to run; ``auto`` takes the kernel if it can run, and logs the choice once.

    Raises:
        ValueError: ``implementation`` is unknown.
        ImplementationUnavailableError: the requested one cannot run here.
    """
    if implementation == "reference":
        return "reference"
    if implementation not in ("auto", "cpu", "gpu"):
        raise ValueError(f"implementation={implementation!r}; expected 'auto', 'reference', 'cpu' or 'gpu'")
    kernel = ("cpu" if device.type == "cpu" else "gpu") if implementation == "auto" else implementation
    missing = _why_not(kernel, device, gpu_kernel)
    if missing and implementation != "auto":
        raise ImplementationUnavailableError(f"{operator}: implementation {kernel!r} cannot run: {missing}")
    choice = "reference" if missing else kernel
    if implementation == "auto" and (operator, choice) not in _logged and not torch.compiler.is_compiling():
        _logged.add((operator, choice))
        _logger.info("%s runs as %r%s", operator, choice, f" because {missing}" if missing else "")
    return choice


@constant_when_compiled
def _why_not(kernel: str, device: torch.device, gpu_kernel: bool) -> str | None:
    """Return why the kernel for "cpu" or "gpu" cannot run; None if it can."""
    if kernel == "gpu":
        return why_no_gpu_kernel(device.type) if gpu_kernel else "the operator has no GPU kernel"
    if device.type != "cpu":
        return f"the tensors are on {device.type}"
    return "the compiled extension is not installed" if compiled_kernels() is None else None

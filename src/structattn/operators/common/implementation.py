"""Which implementation of an operator runs: a pure function of what was asked for, the device and what is installed."""

import logging
from typing import Literal

import torch

from structattn.operators.common.kernels import compiled_kernels
from structattn.support.errors import ImplementationUnavailableError

Implementation = Literal["auto", "reference", "cpu", "gpu"]

_logger = logging.getLogger("structattn")
_told: set[tuple[str, str]] = set()


def chosen_implementation(operator: str, implementation: Implementation, device: torch.device) -> str:
    """Name the implementation to run; ``auto`` takes the kernel where it can run, and says once what it took.

    Raises:
        ValueError: ``implementation`` is none of the known words.
        ImplementationUnavailableError: the one asked for cannot run here.
    """
    if implementation == "reference":
        return "reference"
    missing = _why_not_cpu(device)
    if implementation == "cpu":
        if missing:
            raise ImplementationUnavailableError(f"{operator}: implementation 'cpu' cannot run: {missing}")
        return "cpu"
    if implementation == "gpu":
        raise ImplementationUnavailableError(f"{operator}: implementation 'gpu' does not exist yet")
    if implementation != "auto":
        raise ValueError(f"implementation={implementation!r}; expected 'auto', 'reference', 'cpu' or 'gpu'")
    choice = "reference" if missing else "cpu"
    if (operator, choice) not in _told and not torch.compiler.is_compiling():
        _told.add((operator, choice))
        _logger.info("%s runs as %r%s", operator, choice, f" because {missing}" if missing else "")
    return choice


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _extension_missing() -> bool:
    return compiled_kernels() is None


def _why_not_cpu(device: torch.device) -> str | None:
    if device.type != "cpu":
        return f"the tensors are on {device.type}"
    if _extension_missing():
        return "the compiled extension is not installed"
    return None

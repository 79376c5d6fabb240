"""Comparisons of the contracts of layers and positions: what differs, from what, and by how much."""

from typing import Final

import torch
from torch import Tensor

from structattn.support.errors import BrokenContractError

WHOLE: Final = "that of the whole sequence"
ALONE: Final = "that of the sequence alone"
BEFORE: Final = "that before"


def require_close(what: str, result: Tensor, reference: str, expected: Tensor, tolerance: float) -> None:
    """Check that ‖result - expected‖ <= tolerance ‖expected‖.

    Raises:
        BrokenContractError: it is larger, or a number is NaN.
    """
    _require_shape(what, result, expected)
    error = (result - expected).norm().item() / max(expected.norm().item(), 1e-30)
    if not error <= tolerance:
        raise BrokenContractError(f"{what} differs from {reference}: relative error {error:.1e}")


def require_equal(what: str, result: Tensor, reference: str, expected: Tensor) -> None:
    """Check that two tensors are equal.

    Raises:
        BrokenContractError: they are not, or a number is NaN.
    """
    _require_shape(what, result, expected)
    if not torch.equal(result, expected):
        raise BrokenContractError(f"{what} differs from {reference} by up to {(result - expected).abs().max():.1e}")


def require_zero(what: str, result: Tensor) -> None:
    """Check that all numbers are 0.

    Raises:
        BrokenContractError: one is not.
    """
    if (result != 0).any():
        raise BrokenContractError(f"{what} is up to {result.abs().max():.1e}; expected 0")


def _require_shape(what: str, result: Tensor, expected: Tensor) -> None:
    if result.shape != expected.shape:
        raise BrokenContractError(f"{what} has shape {tuple(result.shape)}; expected {tuple(expected.shape)}")

"""Sizes of heads and inputs."""

from torch import Tensor


def head_size(size: int, num_heads: int, name: str = "d_model") -> int:
    """Return the size of one of H heads.

    Raises:
        ValueError: H does not divide the size, called ``name``.
    """
    if num_heads < 1 or size % num_heads:
        raise ValueError(f"{num_heads} heads do not divide {name}={size}")
    return size // num_heads


def wrong_width(x: Tensor, d_model: int) -> ValueError:
    """Return the error for an input whose last dimension is not d."""
    *others, width = x.shape
    expected = ", ".join(map(str, [*others, d_model]))
    return ValueError(f"the input has shape {tuple(x.shape)}; expected ({expected}): d_model is {d_model}, not {width}")

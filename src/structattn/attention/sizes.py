"""Sizes of heads and inputs."""

from torch import Tensor


def head_size(d_model: int, num_heads: int) -> int:
    """Return the size of one head, d / H.

    Raises:
        ValueError: H does not divide d.
    """
    if num_heads < 1 or d_model % num_heads:
        raise ValueError(f"{num_heads} heads do not divide d_model={d_model}")
    return d_model // num_heads


def wrong_width(x: Tensor, d_model: int) -> ValueError:
    """Return the error for an input whose last dimension is not d."""
    *others, width = x.shape
    expected = ", ".join(map(str, [*others, d_model]))
    return ValueError(f"the input has shape {tuple(x.shape)}; expected ({expected}): d_model is {d_model}, not {width}")

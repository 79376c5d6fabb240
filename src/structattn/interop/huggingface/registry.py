"""Registration of Gaussian and hard attention with transformers, for ``attn_implementation``."""

from collections.abc import Callable, Sequence
from typing import Any

from transformers import AttentionInterface, AttentionMaskInterface

from structattn.interop.huggingface.gaussian import GaussianAttentionFunction
from structattn.interop.huggingface.hard import HardAttentionFunction
from structattn.interop.huggingface.visibility import visible_mask
from structattn.operators.gaussian_attention import Gaussians, Kernel


def register_attention() -> None:
    """Register "structattn_gaussian" and "structattn_hard", each with its defaults."""
    register_gaussian("structattn_gaussian")
    register_hard("structattn_hard")


def register_gaussian(
    name: str,
    offsets: Sequence[float] | None = None,
    *,
    sigma: float = 1.0,
    kernel: Kernel = "full",
    window: int = 3,
) -> None:
    """Register hard-coded Gaussian attention (You et al. 2020) for ``attn_implementation=name``.

    It replaces self-attention, causal or not, with or without a cache; cross-attention raises an error.

    Args:
        name: without "/", which transformers reserves.
        offsets: centres relative to the query, repeated for all heads; None: the paper's, -1 and 0 for causal
            attention, -1 and 1 otherwise.
        sigma: the standard deviation, in positions.
        kernel: "full", every key; "window", only the ``window`` keys around the centre; "index", the centre alone, with
            weight 1.
        window: odd number of keys for the kernel "window".

    Raises:
        ValueError: an argument is invalid.
    """
    Gaussians(tuple(offsets or ()), sigma=sigma, kernel=kernel, window=window)  # validates the arguments
    _register(name, GaussianAttentionFunction(tuple(offsets) if offsets else None, sigma, kernel, window))


def register_hard(name: str, *, temperature: float = 1.0, straight_through: bool = False) -> None:
    """Register hard attention (the Discrete Transformer paper, section 4) for ``attn_implementation=name``.

    Args:
        name: without "/", which transformers reserves.
        temperature: of the Gumbel-softmax samples in training, at least 0.
        straight_through: use one-hot samples in training, too, with the gradient of the relaxed weights.

    Raises:
        ValueError: the temperature is out of its range.
    """
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature={temperature}; expected 0 <= temperature < inf")
    _register(name, HardAttentionFunction(temperature, straight_through))


def _register(name: str, function: Callable[..., Any]) -> None:
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, visible_mask)

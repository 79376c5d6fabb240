"""Our attention under names by which any model of transformers can ask for it."""

from collections.abc import Callable, Sequence
from typing import Any

from transformers import AttentionInterface, AttentionMaskInterface

from structattn.huggingface.gaussian import GaussianAttentionFunction
from structattn.huggingface.hard import HardAttentionFunction
from structattn.huggingface.visibility import visible_mask
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
    """Let models run with ``attn_implementation=name``, by hard-coded Gaussian attention (You et al. 2020).

    It takes the place of self-attention, causal or not, with or without a cache; cross-attention is refused.

    Args:
        name: without "/", which transformers keeps for other things.
        offsets: where the heads look, relative to their query, repeated until there is one for each head; where None,
            the paper's: -1 and 0 where attention is causal, -1 and 1 elsewhere.
        sigma: the standard deviation, in positions.
        kernel: "full", every key; "window", only the ``window`` keys around the centre; "index", the centre alone, with
            weight 1.
        window: an odd number of keys; read only with that kernel.

    Raises:
        ValueError: a number is out of its range, or a word unknown.
    """
    Gaussians(tuple(offsets or ()), sigma=sigma, kernel=kernel, window=window)  # refuses what is not allowed
    _register(name, GaussianAttentionFunction(tuple(offsets) if offsets else None, sigma, kernel, window))


def register_hard(name: str, *, temperature: float = 1.0, straight_through: bool = False) -> None:
    """Let models run with ``attn_implementation=name``, by hard attention (the Discrete Transformer paper, section 4).

    Args:
        name: without "/", which transformers keeps for other things.
        temperature: of the Gumbel-softmax draw in training, at least 0.
        straight_through: read one value in training, too, with the gradient of the draw.

    Raises:
        ValueError: the temperature is out of its range.
    """
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature={temperature}; expected 0 <= temperature < inf")
    _register(name, HardAttentionFunction(temperature, straight_through))


def _register(name: str, function: Callable[..., Any]) -> None:
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, visible_mask)

"""Settings of attention mechanisms."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, field_validator

from structattn.settings.base import Settings, Size

Kernel = Literal["full", "window", "index"]


class MultiHead(Settings):
    """Base class of mechanisms with several heads."""

    num_heads: Size | None = Field(default=None, description="number of heads; null: that of the model")


class Softmax(MultiHead):
    """Multi-head scaled dot-product attention (Vaswani et al. 2017)."""

    attention: Literal["softmax"] = "softmax"


class GumbelSoftmax(Settings):
    """Base class of hard attention that is trained with Gumbel-softmax."""

    temperature: NonNegativeFloat = Field(default=1.0, description="temperature τ of the Gumbel-softmax in training")
    straight_through: bool = Field(
        default=False,
        description="straight-through estimator: one-hot weights in the forward pass of training, the gradient of the "
        "relaxed weights in the backward pass",
    )
    noise: bool = Field(
        default=True, description="Gumbel noise in training; false: none, so that training is deterministic (ours)"
    )


class Hard(GumbelSoftmax, MultiHead):
    """Hard attention: each head selects one position; trained with Gumbel-softmax (Discrete Transformer)."""

    attention: Literal["hard"]


class Gaussian(MultiHead):
    """Hard-coded Gaussian attention around fixed offsets (You et al. 2020)."""

    attention: Literal["gaussian"]
    offsets: tuple[float, ...] | None = Field(
        default=None,
        min_length=1,
        description="centres relative to the query's position, repeated for all heads; null: -1, 0 in causal and -1, 1 "
        "in bidirectional self-attention, -1, 0, 1 in cross-attention",
    )
    num_learned_heads: NonNegativeInt = Field(
        default=0, description="how many of the heads use learned softmax attention instead"
    )
    kernel: Kernel = Field(
        default="full",
        description="full: all positions; window: the `window` positions around the centre; index: the position at the "
        "centre alone, with weight 1",
    )
    window: Size = Field(default=3, description="number of positions of the window kernel, odd")
    sigma: PositiveFloat = Field(default=1.0, description="standard deviation, in positions")

    @field_validator("window")
    @classmethod
    def _check_window(cls, window: int) -> int:
        if window % 2 == 0:
            raise ValueError("expected an odd number of positions")
        return window


class CrossGaussian(Gaussian):
    """Hard-coded Gaussian attention around the target position times the length ratio (You et al. 2020)."""

    length_ratio: PositiveFloat | None = Field(
        default=None,
        description="γ, mean source length / mean target length; null: computed from the training pairs, in tokens "
        "without <eos>",
    )
    floor: bool = Field(
        default=True, description="round centres down, as in the paper; the authors' code does not round"
    )


class DeltaProduct(MultiHead):
    """Gated DeltaProduct, a linear recurrence (Siems et al. 2025)."""

    attention: Literal["delta_product"]
    num_householder: int = Field(
        default=2, ge=1, le=64, description="m, number of Householder steps per token; 1: gated DeltaNet"
    )
    key_size: Size | None = Field(default=None, description="size of a head's keys; null: d_model / num_heads")
    value_size: Size | None = Field(default=None, description="size of a head's values; null: d_model / num_heads")
    gate: bool = Field(default=True, description="whether the state decays; false: it can be kept for ever")
    negative_eigenvalues: bool = Field(
        default=True, description="strengths in (0, 2), which can reflect; false: in (0, 1), which can only erase"
    )
    convolution_size: int = Field(
        default=4, ge=0, le=64, description="positions that the convolution of queries, keys and values sees; 0: none"
    )


class NoAttention(Settings):
    """No sublayer of this kind, and no residual connection and layer norm for it."""

    attention: Literal["none"]

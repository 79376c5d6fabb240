"""Settings shared by all transformers."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from structattn.settings.base import MAX_SIZE, Settings
from structattn.settings.mechanisms import Gaussian, MultiHead
from structattn.settings.positions import Positions, Rotary, Sinusoidal


class TransformerSettings(Settings):
    """Base class of transformers; the defaults are those of DuSell & Chiang (2024) without stacks."""

    d_model: int = Field(default=32, ge=1, le=MAX_SIZE, description="size of the hidden states")
    d_ff: int | None = Field(
        default=64,
        ge=1,
        le=MAX_SIZE,
        description="hidden units of the feed-forward sublayers; null: no feed-forward sublayers",
    )
    num_heads: int = Field(
        default=4, ge=1, le=MAX_SIZE, description="number of attention heads, unless a layer has its own"
    )
    positions: Positions = Field(
        default=Sinusoidal(), description="positional encoding, a name or a mapping with its fields"
    )
    norm: Literal["pre", "post"] = Field(
        default="pre",
        description="layer norm before each sublayer and after the last layer (pre), or after each sublayer (post)",
    )
    bias: bool = Field(default=True, description="whether the query, key, value and output projections have a bias")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="dropout rate, unless given below")
    embedding_dropout: float | None = Field(default=None, ge=0, lt=1, description="dropout rate of embeddings")
    attention_dropout: float | None = Field(default=None, ge=0, lt=1, description="dropout rate of attention weights")
    hidden_dropout: float | None = Field(
        default=None, ge=0, lt=1, description="dropout rate of the hidden units of feed-forward sublayers"
    )
    weight_init: Literal["uniform", "xavier", "lecun"] = Field(
        default="uniform",
        description="initial weights of linear maps; uniform: U(-s, s), but Xavier uniform around stacks (DuSell & "
        "Chiang 2024); xavier: Xavier uniform (You et al. 2020); lecun: normal with variance 1 / fan_in",
    )
    embedding_init: Literal["uniform", "normal", "scaled_normal", "truncated_normal"] = Field(
        default="uniform",
        description="initial embeddings: U(-s, s), N(0, 1), N(0, 1 / d_model), or N(0, 0.02²) truncated at ±0.04",
    )
    init_scale: float = Field(default=0.1, gt=0, description="s of the uniform distribution U(-s, s)")


def check_num_heads(model: TransformerSettings, name: str, mechanisms: Sequence[Settings]) -> None:
    """Check the numbers of heads of several layers.

    Args:
        model: the settings of the model.
        name: the name of the layers, for messages.
        mechanisms: the settings of each layer's attention.

    Raises:
        ValueError: d_model is not divisible by the number of heads, all heads of a Gaussian layer are learned, or the
            head size is odd and positions are rotary; the message has the name and index of the layer.
    """
    for index, mechanism in enumerate(mechanisms):
        num_heads = (mechanism.num_heads or model.num_heads) if isinstance(mechanism, MultiHead) else None
        if num_heads is None:
            continue
        if model.d_model % num_heads:
            raise ValueError(f"{name} {index}: d_model {model.d_model} is not divisible by num_heads {num_heads}")
        if isinstance(mechanism, Gaussian) and mechanism.num_learned_heads >= num_heads:
            raise ValueError(
                f"{name} {index}: num_learned_heads={mechanism.num_learned_heads}; expected less than {num_heads} heads"
            )
        if isinstance(model.positions, Rotary) and model.d_model // num_heads % 2:
            raise ValueError(
                f"{name} {index}: rotary positions need an even head size; got {model.d_model // num_heads}"
            )

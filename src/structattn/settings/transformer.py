"""What the settings of all transformers share."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from structattn.settings.base import Settings
from structattn.settings.mechanisms import Gaussian, WithHeads
from structattn.settings.positions import Positions, Rotary, Sinusoidal


class TransformerSettings(Settings):
    """Sizes, positions, norms, dropout and initial weights; by default the plain ones of DuSell & Chiang (2024)."""

    d_model: int = Field(default=32, ge=1, description="d, the width of the residual stream")
    d_ff: int | None = Field(
        default=64, ge=1, description="hidden units of the feed-forward sublayers; null: there are none"
    )
    num_heads: int = Field(default=4, ge=1, description="attention heads of the layers that have heads")
    positions: Positions = Field(default=Sinusoidal(), description="the kind of positions, by name or with its fields")
    norm: Literal["pre", "post"] = Field(
        default="pre", description="layer norms before the sublayers and after the last layer, or after each sublayer"
    )
    bias: bool = Field(default=True, description="biases of the queries, keys, values and outputs of attention heads")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="rate everywhere, where it is not given below")
    embedding_dropout: float | None = Field(default=None, ge=0, lt=1, description="rate for the embedded tokens")
    attention_dropout: float | None = Field(default=None, ge=0, lt=1, description="rate for softmax weights")
    hidden_dropout: float | None = Field(
        default=None, ge=0, lt=1, description="rate for the hidden units of the feed-forward sublayers"
    )
    weight_init: Literal["uniform", "xavier", "lecun"] = Field(
        default="uniform",
        description="uniform: U(-s, s), and Xavier's rule around stacks (DuSell & Chiang 2024); for all linear maps, "
        "xavier: Xavier's rule (You et al. 2020), lecun: a normal distribution of variance 1 / inputs",
    )
    embedding_init: Literal["uniform", "normal", "scaled_normal", "truncated_normal"] = Field(
        default="uniform",
        description="how embeddings are drawn: U(-s, s), N(0, 1), N(0, 1 / d), or N(0, 0.02²) cut off at twice that",
    )
    init_scale: float = Field(default=0.1, gt=0, description="s of U(-s, s)")


def require_heads_that_fit(model: TransformerSettings, place: str, mechanisms: Sequence[Settings]) -> None:
    """Refuse heads that do not divide the width, Gaussian layers of learned heads only, and odd heads that are to turn.

    Raises:
        ValueError: the message names ``place`` and the number of the layer.
    """
    for index, mechanism in enumerate(mechanisms):
        num_heads = (mechanism.num_heads or model.num_heads) if isinstance(mechanism, WithHeads) else None
        if num_heads is None:
            continue
        if model.d_model % num_heads:
            raise ValueError(f"{place} {index}: {num_heads} heads do not divide the width {model.d_model}")
        if isinstance(mechanism, Gaussian) and mechanism.num_learned_heads >= num_heads:
            raise ValueError(
                f"{place} {index}: {mechanism.num_learned_heads} learned heads of {num_heads} leave no other"
            )
        if isinstance(model.positions, Rotary) and model.d_model // num_heads % 2:
            raise ValueError(
                f"{place} {index}: rotary positions turn pairs of numbers, and a head has {model.d_model // num_heads}"
            )

"""The settings of a language model."""

from typing import Literal, Self

from pydantic import Field, model_validator

from structattn.settings.base import Settings
from structattn.settings.layers import Layers, SoftmaxLayer


class LanguageModelSettings(Settings):
    """A causal transformer language model; by default the plain one of DuSell & Chiang (2024, section 6)."""

    width: int = Field(default=32, ge=1, description="d, the width of the residual stream")
    feedforward_width: int = Field(default=64, ge=1, description="hidden units of the feed-forward sublayers")
    heads: int = Field(default=4, ge=1, description="attention heads of the softmax layers")
    layers: Layers = Field(default=(SoftmaxLayer(),) * 5, description="a list of layers, or its short form")
    positions: Literal["none", "sinusoidal"] = "sinusoidal"
    norm: Literal["pre", "post"] = "pre"
    dropout: float = Field(default=0.1, ge=0, lt=1)
    tied: bool = Field(default=False, description="share input and output embeddings; drops the output bias")
    initial_embedding: Literal["uniform", "normal"] = Field(
        default="uniform", description="how embeddings are drawn: U(-s, s) as the rest (the paper), or N(0, 1)"
    )
    initial_scale: float = Field(default=0.1, gt=0, description="s of U(-s, s), for what is not drawn by Xavier's rule")

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        for index, layer in enumerate(self.layers):
            heads = (layer.heads or self.heads) if isinstance(layer, SoftmaxLayer) else None
            if heads and self.width % heads:
                raise ValueError(f"layer {index}: {heads} heads do not divide the width {self.width}")
        return self

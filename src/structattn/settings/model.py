"""The settings of transformers that read one sequence."""

from typing import Literal, Self

from pydantic import Field, model_validator

from structattn.settings.layers import Layers, SoftmaxLayer
from structattn.settings.transformer import TransformerSettings, require_heads_that_fit


class LanguageModelSettings(TransformerSettings):
    """A causal transformer language model."""

    kind: Literal["transformer"] = "transformer"
    layers: Layers = Field(default=(SoftmaxLayer(),) * 5, description="a list of layers, or its short form")
    tied: bool = Field(default=False, description="share input and output embeddings; drops the output bias")

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        require_heads_that_fit(self, "layer", self.layers)
        return self


class MaskedLanguageModelSettings(TransformerSettings):
    """A transformer that fills in masked tokens and sees both sides of them; its stacks go from left to right."""

    kind: Literal["masked"]
    layers: Layers = Field(default=(SoftmaxLayer(),) * 5, description="a list of layers, or its short form")
    tied: bool = Field(default=False, description="share input and output embeddings; drops the output bias")

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        require_heads_that_fit(self, "layer", self.layers)
        return self

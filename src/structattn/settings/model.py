"""The settings of transformers that read one sequence."""

from typing import Literal, Self

from pydantic import Field, model_validator

from structattn.settings.embeddings import TableEmbedding, WordEmbedding
from structattn.settings.layers import Layers, SoftmaxLayer
from structattn.settings.transformer import TransformerSettings, require_heads_that_fit


class LanguageModelSettings(TransformerSettings):
    """A causal transformer language model."""

    kind: Literal["transformer"] = "transformer"
    layers: Layers = Field(default=(SoftmaxLayer(),) * 5, description="a list of layers, or its short form")
    embedding: WordEmbedding = Field(
        default=TableEmbedding(), description="table, c2w or character_lstm, by name or with its fields"
    )
    tied_embeddings: bool = Field(default=False, description="share input and output embeddings; drops the output bias")

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        require_heads_that_fit(self, "layer", self.layers)
        return self

    @model_validator(mode="after")
    def _words_fit(self) -> Self:
        if isinstance(self.embedding, TableEmbedding):
            return self
        if self.tied_embeddings:
            raise ValueError(f"tied_embeddings shares a table, and {self.embedding.kind} has none to share")
        if self.embedding.words == "rare":
            raise ValueError("a language model reads rare words as <unk>: words: rare leaves it nothing to spell")
        return self


class MaskedLanguageModelSettings(TransformerSettings):
    """A transformer that fills in masked tokens and sees both sides of them; its stacks go from left to right."""

    kind: Literal["masked"]
    layers: Layers = Field(default=(SoftmaxLayer(),) * 5, description="a list of layers, or its short form")
    tied_embeddings: bool = Field(default=False, description="share input and output embeddings; drops the output bias")

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        require_heads_that_fit(self, "layer", self.layers)
        return self

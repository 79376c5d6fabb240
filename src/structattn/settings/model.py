"""Settings of causal and masked transformer language models."""

from typing import Literal, Self

from pydantic import Field, model_validator

from structattn.settings.embeddings import TableEmbedding, WordEmbedding
from structattn.settings.layers import DEFAULT_LAYERS, Layers
from structattn.settings.transformer import TransformerSettings, check_num_heads


class LanguageModelSettings(TransformerSettings):
    """Causal transformer language model."""

    kind: Literal["transformer"] = "transformer"
    layers: Layers = Field(
        default=DEFAULT_LAYERS, description="list of layers, or short form such as 2.superposition-32.2"
    )
    embedding: WordEmbedding = Field(
        default=TableEmbedding(),
        description="kind of the embeddings: table, c2w or character_lstm, a name or a mapping with its fields",
    )
    tied_embeddings: bool = Field(
        default=False, description="share the weights of embeddings and output layer, which then has no bias"
    )

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        check_num_heads(self, "layer", self.layers)
        return self

    @model_validator(mode="after")
    def _check_embedding(self) -> Self:
        if isinstance(self.embedding, TableEmbedding):
            return self
        if self.tied_embeddings:
            raise ValueError(f"tied_embeddings needs table embeddings; got {self.embedding.kind}")
        if self.embedding.words == "rare":
            raise ValueError(
                "embedding: words: rare is for the source of a translation; out-of-vocabulary words of a language "
                "model's input are <unk>"
            )
        return self


class MaskedLanguageModelSettings(TransformerSettings):
    """Bidirectional transformer that predicts masked tokens; its stack attention runs from left to right."""

    kind: Literal["masked"]
    layers: Layers = Field(
        default=DEFAULT_LAYERS, description="list of layers, or short form such as 2.superposition-32.2"
    )
    tied_embeddings: bool = Field(
        default=False, description="share the weights of embeddings and output layer, which then has no bias"
    )
    bos: bool = Field(
        default=True,
        description="whether inputs begin with <bos>, the empty stack of stack pointers, as in the paper of Li et al. "
        "(2024); false as in their code",
    )

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        check_num_heads(self, "layer", self.layers)
        return self


def reads_bos(model: object) -> bool:
    """Return whether the inputs of a model begin with <bos>; masked models can do without."""
    return bool(getattr(model, "bos", True))

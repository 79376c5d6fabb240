"""Settings of encoder-decoder transformers."""

from typing import Literal, Self

from pydantic import Field, model_validator

from structattn.settings.base import Settings
from structattn.settings.embeddings import (
    C2wEmbedding,
    CharacterLstmEmbedding,
    SpellingSettings,
    TableEmbedding,
    WordEmbedding,
)
from structattn.settings.layers import DEFAULT_LAYERS, CrossLayers, Layers
from structattn.settings.mechanisms import NoAttention
from structattn.settings.transformer import TransformerSettings, check_num_heads

TiedEmbeddings = Literal["none", "two-way", "three-way"]


class EncoderSettings(Settings):
    """Encoder of the source: bidirectional, except for stack attention, which runs from left to right."""

    layers: Layers = Field(
        default=DEFAULT_LAYERS, description="list of layers, or short form such as 2.superposition-32.2"
    )
    embedding: WordEmbedding = Field(
        default=TableEmbedding(),
        description="kind of the source embeddings: table, c2w or character_lstm, a name or a mapping with its fields",
    )


class DecoderSettings(Settings):
    """Causal decoder of the target."""

    layers: Layers = Field(
        default=DEFAULT_LAYERS, description="list of layers, or short form such as 2.superposition-32.2"
    )
    cross_attention: CrossLayers | None = Field(
        default=None,
        description="cross-attention of each layer, a list or its short form, with none for layers without it; null: "
        "softmax in every layer",
    )
    embedding: WordEmbedding = Field(
        default=TableEmbedding(),
        description="kind of the target embeddings: table, c2w or character_lstm, a name or a mapping with its fields",
    )
    spelling: SpellingSettings | None = Field(
        default=None, description="LSTM that spells words predicted as <unk>; null: none"
    )

    @model_validator(mode="after")
    def _check_embedding(self) -> Self:
        if isinstance(self.embedding, C2wEmbedding | CharacterLstmEmbedding) and self.embedding.words == "rare":
            raise ValueError(
                "embedding: words: rare is for the source; out-of-vocabulary words of the decoder's input are <unk>"
            )
        return self

    @model_validator(mode="after")
    def _check_cross_attention(self) -> Self:
        if self.cross_attention is not None and len(self.cross_attention) != len(self.layers):
            raise ValueError(
                f"cross_attention has {len(self.cross_attention)} entries; expected one per layer, {len(self.layers)}"
            )
        if self.cross_attention is not None and all(isinstance(layer, NoAttention) for layer in self.cross_attention):
            raise ValueError(
                "cross_attention is none in all layers; expected at least one layer that attends to the source"
            )
        return self


class EncoderDecoderSettings(TransformerSettings):
    """Encoder-decoder transformer, for translation."""

    kind: Literal["encoder_decoder"]
    encoder: EncoderSettings = Field(default=EncoderSettings(), description="encoder of the source")
    decoder: DecoderSettings = Field(default=DecoderSettings(), description="decoder of the target")
    tied_embeddings: TiedEmbeddings = Field(
        default="none",
        description="two-way: target embeddings and output layer share weights; three-way: source embeddings, too; the "
        "output layer then has no bias",
    )

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        check_num_heads(self, "encoder layer", self.encoder.layers)
        check_num_heads(self, "decoder layer", self.decoder.layers)
        check_num_heads(self, "cross-attention of decoder layer", self.decoder.cross_attention or ())
        return self

    @model_validator(mode="after")
    def _check_tied_embeddings(self) -> Self:
        tied = {"three-way": (self.encoder, self.decoder), "two-way": (self.decoder,), "none": ()}[self.tied_embeddings]
        for side in tied:
            if not isinstance(side.embedding, TableEmbedding):
                raise ValueError(
                    f"tied_embeddings: {self.tied_embeddings} needs table embeddings; got {side.embedding.kind}"
                )
        return self

"""The settings of encoder-decoders."""

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
from structattn.settings.layers import CrossLayers, Layers, SoftmaxLayer
from structattn.settings.mechanisms import Nothing
from structattn.settings.transformer import TransformerSettings, require_heads_that_fit

Tied = Literal["none", "two-way", "three-way"]


class EncoderSettings(Settings):
    """The side that reads the source whole; its stacks go from left to right."""

    layers: Layers = Field(default=(SoftmaxLayer(),) * 5, description="a list of layers, or its short form")
    embedding: WordEmbedding = Field(
        default=TableEmbedding(), description="table, c2w or character_lstm, by name or with its fields"
    )


class DecoderSettings(Settings):
    """The side that predicts the target token by token."""

    layers: Layers = Field(default=(SoftmaxLayer(),) * 5, description="a list of layers, or its short form")
    cross_attention: CrossLayers | None = Field(
        default=None,
        description="attention to the source in each layer, a list or its short form, with none where a layer has "
        "none; left out: softmax in every layer",
    )
    embedding: WordEmbedding = Field(
        default=TableEmbedding(),
        description="of what it reads: table, c2w or character_lstm, by name or with its fields",
    )
    spelling: SpellingSettings | None = Field(
        default=None, description="what spells the words that are predicted as <unk>; null: nothing does"
    )

    @model_validator(mode="after")
    def _target_words_have_numbers(self) -> Self:
        if isinstance(self.embedding, C2wEmbedding | CharacterLstmEmbedding) and self.embedding.words == "rare":
            raise ValueError("a decoder reads rare words as <unk>: words: rare leaves it nothing to spell")
        return self

    @model_validator(mode="after")
    def _cross_fits(self) -> Self:
        if self.cross_attention is not None and len(self.cross_attention) != len(self.layers):
            raise ValueError(
                f"cross_attention tells of {len(self.cross_attention)} layers, and there are {len(self.layers)}"
            )
        if self.cross_attention is not None and all(isinstance(layer, Nothing) for layer in self.cross_attention):
            raise ValueError("cross_attention: no layer looks at the source; expected one that is not none")
        return self


class EncoderDecoderSettings(TransformerSettings):
    """A transformer that reads one sequence and predicts another, as for translation."""

    kind: Literal["encoder_decoder"]
    encoder: EncoderSettings = Field(default=EncoderSettings(), description="the side that reads the source")
    decoder: DecoderSettings = Field(default=DecoderSettings(), description="the side that predicts the target")
    tied_embeddings: Tied = Field(
        default="none",
        description="two-way: target embeddings are the output's; three-way: the source's, too; drops the output bias",
    )

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        require_heads_that_fit(self, "encoder layer", self.encoder.layers)
        require_heads_that_fit(self, "decoder layer", self.decoder.layers)
        require_heads_that_fit(self, "cross-attention of decoder layer", self.decoder.cross_attention or ())
        return self

    @model_validator(mode="after")
    def _tables_can_be_tied(self) -> Self:
        spelt = {"three-way": (self.encoder, self.decoder), "two-way": (self.decoder,), "none": ()}[
            self.tied_embeddings
        ]
        for side in spelt:
            if not isinstance(side.embedding, TableEmbedding):
                raise ValueError(
                    f"tied_embeddings: {self.tied_embeddings} shares a table, and {side.embedding.kind} has none"
                )
        return self

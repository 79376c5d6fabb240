"""The settings of transformers with two streams."""

from typing import Literal, Self

from pydantic import Field, model_validator

from structattn.settings.encoder_decoder import Tied
from structattn.settings.mechanisms import Softmax
from structattn.settings.transformer import TransformerSettings, require_heads_that_fit


class TwoStreamParts(TransformerSettings):
    """What all transformers with two streams share; width, heads and feed-forward maps are those of either stream."""

    num_layers: int = Field(default=4, ge=1, description="how many; of an encoder-decoder, on either side")
    temperature: float = Field(default=1.0, ge=0, description="τ of the Gumbel-softmax in training")
    straight_through: bool = Field(
        default=False, description="read one position in training, too, with the gradient of the relaxed weights"
    )
    semantic_positions: bool = Field(
        default=True, description="positions added to the semantic stream, too; false: only the syntactic one has them"
    )

    @model_validator(mode="after")
    def _hard_attention_has_no_dropout(self) -> Self:
        if self.attention_dropout:
            raise ValueError("attention_dropout: two streams read by hard attention, of which nothing is dropped")
        return self

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        require_heads_that_fit(self, "layer", (Softmax(),))
        return self


class TwoStreamSettings(TwoStreamParts):
    """A causal language model with a soft stream that decides where to look and a hard one (Discrete Transformer)."""

    kind: Literal["two_stream"]
    tied_embeddings: bool = Field(
        default=False, description="share output and semantic input embeddings; drops the output bias"
    )


class TwoStreamEncoderDecoderSettings(TwoStreamParts):
    """An encoder-decoder with a soft stream that decides where to look and a hard one (Discrete Transformer)."""

    kind: Literal["two_stream_encoder_decoder"]
    tied_embeddings: Tied = Field(
        default="none",
        description="two-way: the target's semantic embeddings are the output's; three-way: target and source share "
        "their embeddings of either stream as well; drops the output bias",
    )

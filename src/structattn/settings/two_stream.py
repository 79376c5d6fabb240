"""Settings of two-stream transformers."""

from typing import Literal, Self

from pydantic import Field, model_validator

from structattn.settings.base import MAX_LAYERS
from structattn.settings.encoder_decoder import TiedEmbeddings
from structattn.settings.mechanisms import Softmax
from structattn.settings.transformer import TransformerSettings, check_num_heads


class TwoStreamBase(TransformerSettings):
    """Base class of two-stream transformers; sizes and number of heads are those of each stream."""

    num_layers: int = Field(
        default=4, ge=1, le=MAX_LAYERS, description="number of layers; in an encoder-decoder, of each side"
    )
    temperature: float = Field(default=1.0, ge=0, description="temperature τ of the Gumbel-softmax in training")
    straight_through: bool = Field(
        default=False,
        description="straight-through estimator: one-hot weights in the forward pass of training, the gradient of the "
        "relaxed weights in the backward pass",
    )
    noise: bool = Field(
        default=True,
        description="Gumbel noise in training; false: none, so that training is deterministic (ours)",
    )
    semantic_positions: bool = Field(
        default=True, description="add positions to both streams; false: to the syntactic stream only"
    )

    @model_validator(mode="after")
    def _check_attention_dropout(self) -> Self:
        if self.attention_dropout:
            raise ValueError(
                "attention_dropout: the hard attention of two-stream models has no dropout; expected 0 or null"
            )
        return self

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        check_num_heads(self, "layer", (Softmax(),))
        return self


class TwoStreamSettings(TwoStreamBase):
    """Two-stream causal language model: syntactic and semantic stream (Discrete Transformer)."""

    kind: Literal["two_stream"]
    layer_form: Literal["standard", "simplified"] = Field(
        default="standard",
        description="standard: attention and feed-forward sublayers with residual connections and layer norms, as in "
        "the paper's experiments; simplified: those of its equations, x + attention(feed-forward(x)) without output "
        "projections, other residual connections and layer norms",
    )
    tied_embeddings: bool = Field(
        default=False, description="share the weights of semantic embeddings and output layer, which then has no bias"
    )

    @model_validator(mode="after")
    def _check_simplified(self) -> Self:
        if self.layer_form == "simplified" and self.d_ff is None:
            raise ValueError("d_ff: null; simplified layers need feed-forward sublayers, expected a number of units")
        return self


class TwoStreamEncoderDecoderSettings(TwoStreamBase):
    """Two-stream encoder-decoder: syntactic and semantic stream (Discrete Transformer)."""

    kind: Literal["two_stream_encoder_decoder"]
    tied_embeddings: TiedEmbeddings = Field(
        default="none",
        description="two-way: semantic target embeddings and output layer share weights; three-way: source and target "
        "embeddings of each stream, too; the output layer then has no bias",
    )

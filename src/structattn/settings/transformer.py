"""Settings of transformers: language models, encoder-decoders, two streams."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from structattn.settings.attention import DeltaProduct, Gaussian, GumbelSoftmax, Hard, MultiHead, NoAttention, Softmax
from structattn.settings.base import NumLayers, Probability, Settings, Size
from structattn.settings.embeddings import (
    POSITIONS,
    PositionSettings,
    Rotary,
    Sinusoidal,
    SpellingSettings,
    TableEmbedding,
    TextEmbedding,
    WordEmbedding,
)
from structattn.settings.layers import DEFAULT_LAYERS, CrossLayers, Layers, Loops
from structattn.settings.mechanisms import mechanism_of
from structattn.settings.stacks import DepthStack, StackPointer

_CROSS = "cross-attention of decoder layer"


class TransformerSettings(Settings):
    """Base class of transformers; the defaults are those of DuSell & Chiang (2024) without stacks."""

    d_model: Size = Field(default=32, description="size of the hidden states")
    d_ff: Size | None = Field(
        default=64, description="hidden units of the feed-forward sublayers; null: no feed-forward sublayers"
    )
    num_heads: Size = Field(default=4, description="number of attention heads, unless a layer has its own")
    positions: PositionSettings = Field(
        default=Sinusoidal(), description="positional encoding, a name or a mapping with its fields"
    )
    norm: Literal["pre", "post"] = Field(
        default="pre",
        description="layer norm before each sublayer and after the last layer (pre), or after each sublayer (post)",
    )
    bias: bool = Field(default=True, description="whether the query, key, value and output projections have a bias")
    dropout: Probability = Field(default=0.1, description="dropout rate, unless given below")
    embedding_dropout: Probability | None = Field(default=None, description="dropout rate of embeddings")
    attention_dropout: Probability | None = Field(
        default=None,
        description="dropout rate of attention weights, those of softmax attention and of learned heads; other than 0 "
        "only if a layer has them",
    )
    hidden_dropout: Probability | None = Field(
        default=None, description="dropout rate of the hidden units of feed-forward sublayers"
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
    init_scale: PositiveFloat = Field(default=0.1, description="s of the uniform distribution U(-s, s)")

    def attentions(self) -> Mapping[str, Sequence[Settings]]:
        """Return the name of each list of layers, for messages, and the attention of each of its layers."""
        return {}

    @model_validator(mode="after")
    def _check_attention_dropout(self) -> Self:
        layers = list(chain.from_iterable(self.attentions().values()))
        if self.attention_dropout and layers and not any(mechanism_of(each).takes_dropout(each) for each in layers):
            raise ValueError(
                f"attention_dropout: {self.attention_dropout}; no layer has weights that are dropped, as those of "
                "softmax attention; expected 0 or null"
            )
        return self

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        for name, mechanisms in self.attentions().items():
            for index, mechanism in enumerate(mechanisms):
                for stack in (mechanism, getattr(mechanism, "stack", None)):
                    if isinstance(stack, StackPointer) and self.d_model % stack.num_heads:
                        heads = f"num_heads {stack.num_heads} of its stack"
                        raise ValueError(f"{name} {index}: d_model {self.d_model} is not divisible by {heads}")
                num_heads = (mechanism.num_heads or self.num_heads) if isinstance(mechanism, MultiHead) else None
                if num_heads is None:
                    continue
                if self.d_model % num_heads and not _has_sizes_of_its_own(mechanism):
                    raise ValueError(
                        f"{name} {index}: d_model {self.d_model} is not divisible by num_heads {num_heads}"
                    )
                if isinstance(mechanism, Gaussian) and mechanism.num_learned_heads >= num_heads:
                    raise ValueError(
                        f"{name} {index}: num_learned_heads={mechanism.num_learned_heads}; expected less than "
                        f"{num_heads} heads"
                    )
                if isinstance(mechanism, Gaussian):
                    _require_heads_for_offsets(mechanism, num_heads, f"{name} {index}")
                turned = isinstance(self.positions, Rotary) and name != _CROSS and _has_scores(mechanism)
                if turned and self.d_model // num_heads % 2:
                    raise ValueError(
                        f"{name} {index}: rotary positions need an even head size; got {self.d_model // num_heads}"
                    )
        return self


def _has_sizes_of_its_own(mechanism: Settings) -> bool:
    """Whether heads have other sizes than d_model / num_heads."""
    return isinstance(mechanism, DeltaProduct) and None not in (mechanism.key_size, mechanism.value_size)


def _has_scores(mechanism: Settings) -> bool:
    """Whether heads have scores of queries and keys, on which positions may act."""
    return isinstance(mechanism, Softmax | Hard) or getattr(mechanism, "num_learned_heads", 0) > 0


def _require_heads_for_offsets(gaussian: Gaussian, num_heads: int, place: str) -> None:
    offsets, count = gaussian.offsets or (), num_heads - gaussian.num_learned_heads
    if len(offsets) > count:
        raise ValueError(f"{place}: {len(offsets)} offsets for {count} Gaussian heads; expected at most one a head")


class LayeredSettings(TransformerSettings):
    """Base class of language models, causal and masked: one list of layers."""

    layers: Layers = DEFAULT_LAYERS
    loops: Loops | None = Field(
        default=None, description="layers that are applied several times: how often, or a mapping; null: none"
    )
    depth_stack: DepthStack | None = Field(
        default=None, description="StackTrans over depth, a step after each layer, as published; null: none"
    )
    tied_embeddings: bool = Field(
        default=False, description="share the weights of embeddings and output layer, which then has no bias"
    )

    @model_validator(mode="after")
    def _check_loops(self) -> Self:
        if self.loops is not None and self.depth_stack is not None:
            raise ValueError("loops and depth_stack: a stack over depth has no looped layers; expected one of them")
        if self.loops is not None:
            self.loops.require_fits(len(self.layers))
            if self.loops.is_padded and POSITIONS[getattr(self.positions, "kind")].added is not None:  # noqa: B009
                raise ValueError(
                    "loops.padding: blank positions need positions that act on attention scores, or none; got "
                    f"positions {getattr(self.positions, 'kind')!r}"  # noqa: B009 - registered classes have it
                )
        return self

    def attentions(self) -> Mapping[str, Sequence[Settings]]:
        """Return the attention of each layer."""
        return {"layer": self.layers}


class LanguageModelSettings(LayeredSettings):
    """Causal transformer language model."""

    kind: Literal["transformer"] = "transformer"
    embedding: TextEmbedding = TableEmbedding()

    @model_validator(mode="after")
    def _check_embedding(self) -> Self:
        if self.tied_embeddings and not isinstance(self.embedding, TableEmbedding):
            raise ValueError(f"tied_embeddings needs table embeddings; got {self.embedding.kind}")
        return self


class MaskedLanguageModelSettings(LayeredSettings):
    """Bidirectional transformer that predicts masked tokens; its stack attention runs from left to right."""

    kind: Literal["masked"]
    bos: bool = Field(
        default=True,
        description="whether inputs begin with <bos>, the empty stack of stack pointers, as in the paper of Li et al. "
        "(2024); false as in their code",
    )


def reads_bos(model: object) -> bool:
    """Return whether the inputs of a model begin with <bos>; masked models can do without."""
    return bool(getattr(model, "bos", True))


TiedEmbeddings = Literal["none", "two-way", "three-way"]


class EncoderSettings(Settings):
    """Encoder of the source: bidirectional, except for stack attention, which runs from left to right."""

    layers: Layers = DEFAULT_LAYERS
    embedding: WordEmbedding = TableEmbedding()


class DecoderSettings(Settings):
    """Causal decoder of the target."""

    layers: Layers = DEFAULT_LAYERS
    cross_attention: CrossLayers | None = Field(
        default=None,
        description="cross-attention of each layer, a list or its short form, with none for layers without it; null: "
        "softmax in every layer",
    )
    embedding: TextEmbedding = TableEmbedding()
    spelling: SpellingSettings | None = Field(
        default=None, description="LSTM that spells words predicted as <unk>; null: none"
    )

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

    def attentions(self) -> Mapping[str, Sequence[Settings]]:
        """Return the attention of each layer of both sides."""
        return {
            "encoder layer": self.encoder.layers,
            "decoder layer": self.decoder.layers,
            _CROSS: self.decoder.cross_attention or (Softmax(),),
        }

    @model_validator(mode="after")
    def _check_tied_embeddings(self) -> Self:
        tied = {"three-way": (self.encoder, self.decoder), "two-way": (self.decoder,), "none": ()}[self.tied_embeddings]
        for side in tied:
            if not isinstance(side.embedding, TableEmbedding):
                raise ValueError(
                    f"tied_embeddings: {self.tied_embeddings} needs table embeddings; got {side.embedding.kind}"
                )
        return self


class TwoStreamBase(GumbelSoftmax, TransformerSettings):
    """Base class of two-stream transformers; sizes and number of heads are those of each stream."""

    num_layers: NumLayers = Field(default=4, description="number of layers; in an encoder-decoder, of each side")
    semantic_positions: bool = Field(
        default=True, description="add positions to both streams; false: to the syntactic stream only"
    )

    def attentions(self) -> Mapping[str, Sequence[Settings]]:
        """Return one attention, which all layers have."""
        return {"layer": (Hard(attention="hard"),)}


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

"""Settings of word embeddings, positions and the decoder that spells unknown words."""

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from structattn.settings.base import NumLayers, OneOf, Settings, Size, of_kind


class TableEmbedding(Settings):
    """An embedding for each token of the vocabulary."""

    kind: Literal["table"] = "table"


class _CharacterEmbedding(Settings):
    words: Literal["all", "rare"] = Field(
        default="all",
        description="words that are embedded by their characters: all, or out-of-vocabulary words only; others have an "
        "embedding each",
    )
    character_embedding_size: Size = Field(default=50, description="size of the character embeddings")


class C2wEmbedding(_CharacterEmbedding):
    """Bidirectional LSTM over the characters of a word, C2W (Ling et al. 2015); for data at word level."""

    kind: Literal["c2w"]
    hidden_size: Size = Field(default=150, description="number of hidden units of each LSTM")
    coupled: bool = Field(
        default=False, description="peepholes and coupled gates as in the paper, slow; false: ordinary LSTM cells"
    )


class CharacterLstmEmbedding(_CharacterEmbedding):
    """Last state of a deep LSTM over the characters of a word (Luong & Manning 2016); for data at word level."""

    kind: Literal["character_lstm"]
    num_layers: NumLayers = Field(default=2, description="number of LSTM layers; their hidden size is d_model")


WordEmbedding = Annotated[
    TableEmbedding | C2wEmbedding | CharacterLstmEmbedding,
    OneOf("kind", "table", of_kind),
    Field(description="embeddings: table, c2w or character_lstm, a name or a mapping with its fields"),
]


class SpellingSettings(Settings):
    """LSTM that spells words predicted as <unk> (Luong & Manning 2016); for data at word level."""

    character_embedding_size: Size = Field(default=50, description="size of the character embeddings")
    hidden_size: Size | None = Field(default=None, description="hidden units of each LSTM layer; null: d_model")
    num_layers: NumLayers = Field(default=2, description="number of LSTM layers")
    path: Literal["separate", "same"] = Field(
        default="separate",
        description="initial state of the LSTM: tanh(W h), h the hidden state of the decoder (separate), or h, which "
        "also predicts the word (same)",
    )


Layout = Literal["interleaved", "halves"]


class NoPositions(Settings):
    """No positional encoding."""

    kind: Literal["none"]


class Sinusoidal(Settings):
    """Sinusoidal encodings added to the embeddings (Vaswani et al. 2017)."""

    kind: Literal["sinusoidal"] = "sinusoidal"
    layout: Layout = Field(
        default="interleaved", description="sines and cosines alternate, or all sines precede all cosines (halves)"
    )
    base: PositiveFloat = Field(default=10000.0, description="wavelengths range from 2π to about 2π times this")
    denominator: Literal["d", "d-2"] = Field(
        default="d", description="denominator of the exponents; d-2 as in tensor2tensor"
    )
    direction: Literal["forward", "backward"] = Field(
        default="forward",
        description="positions count from the start, or from the end of the text, which masked models and "
        "transductions know",
    )


class Learned(Settings):
    """Learned embeddings of positions, added to those of tokens."""

    kind: Literal["learned"]
    max_positions: Size = Field(default=512, description="maximum sequence length, in tokens")


class Relative(Settings):
    """Relative positions of Transformer-XL (Dai et al. 2019)."""

    kind: Literal["relative"]
    base: PositiveFloat = Field(
        default=10000.0, description="base of the frequencies; 256 in the code of Li et al. (2024)"
    )


class Rotary(Settings):
    """Rotary positions, RoPE (Su et al. 2021)."""

    kind: Literal["rotary"]
    base: PositiveFloat = Field(default=10000.0, description="base of the frequencies")
    layout: Layout = Field(
        default="interleaved", description="pairs of rotated components: neighbours (interleaved), or one of each half"
    )


class Alibi(Settings):
    """Linear biases by distance, ALiBi (Press et al. 2022)."""

    kind: Literal["alibi"]
    variant: Literal["textbook", "shifted"] = Field(
        default="textbook",
        description="shifted: distances of earlier keys are smaller by 0.5, as in the code of Li et al. (2024)",
    )


Positions = Annotated[
    NoPositions | Sinusoidal | Learned | Relative | Rotary | Alibi, OneOf("kind", "sinusoidal", of_kind)
]


def max_positions(model: object) -> int | None:
    """Return the maximum sequence length of a model with learned positions; None for other models."""
    learned = getattr(model, "positions", None)
    holder = learned if isinstance(learned, Learned) else model
    maximum: int | None = getattr(holder, "max_positions", None)
    return maximum


def max_positions_field(model: object) -> str:
    """Return the field of the settings of a model that has its maximum sequence length."""
    return "model.positions.max_positions" if hasattr(model, "positions") else "model.max_positions"

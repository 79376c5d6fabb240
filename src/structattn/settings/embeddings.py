"""Settings of word embeddings and of the decoder that spells unknown words."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Tag

from structattn.settings.base import MAX_LAYERS, MAX_SIZE, Settings, discriminated_by, from_name


class TableEmbedding(Settings):
    """An embedding for each token of the vocabulary."""

    kind: Literal["table"] = "table"


class _CharacterEmbedding(Settings):
    words: Literal["all", "rare"] = Field(
        default="all",
        description="words that are embedded by their characters: all, or out-of-vocabulary words only; others have an "
        "embedding each",
    )
    character_embedding_size: int = Field(default=50, ge=1, le=MAX_SIZE, description="size of the character embeddings")


class C2wEmbedding(_CharacterEmbedding):
    """Bidirectional LSTM over the characters of a word, C2W (Ling et al. 2015); for data at word level."""

    kind: Literal["c2w"]
    hidden_size: int = Field(default=150, ge=1, le=MAX_SIZE, description="number of hidden units of each LSTM")
    coupled: bool = Field(
        default=False, description="peepholes and coupled gates as in the paper, slow; false: ordinary LSTM cells"
    )


class CharacterLstmEmbedding(_CharacterEmbedding):
    """Last state of a deep LSTM over the characters of a word (Luong & Manning 2016); for data at word level."""

    kind: Literal["character_lstm"]
    num_layers: int = Field(
        default=2, ge=1, le=MAX_LAYERS, description="number of LSTM layers; their hidden size is d_model"
    )


_WordEmbedding = Annotated[
    Annotated[TableEmbedding, Tag("table")]
    | Annotated[C2wEmbedding, Tag("c2w")]
    | Annotated[CharacterLstmEmbedding, Tag("character_lstm")],
    discriminated_by("kind", default="table"),
]
WordEmbedding = Annotated[_WordEmbedding, BeforeValidator(from_name, json_schema_input_type=_WordEmbedding | str)]


class SpellingSettings(Settings):
    """LSTM that spells words predicted as <unk> (Luong & Manning 2016); for data at word level."""

    character_embedding_size: int = Field(default=50, ge=1, le=MAX_SIZE, description="size of the character embeddings")
    hidden_size: int | None = Field(
        default=None, ge=1, le=MAX_SIZE, description="hidden units of each LSTM layer; null: d_model"
    )
    num_layers: int = Field(default=2, ge=1, le=MAX_LAYERS, description="number of LSTM layers")
    path: Literal["separate", "same"] = Field(
        default="separate",
        description="initial state of the LSTM: tanh(W h), h the hidden state of the decoder (separate), or h, which "
        "also predicts the word (same)",
    )

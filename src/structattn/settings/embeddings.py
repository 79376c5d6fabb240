"""How words become vectors, and unknown words spellings."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Tag

from structattn.settings.base import Settings, discriminated_by, from_name


class TableEmbedding(Settings):
    """A vector for each token of the vocabulary."""

    kind: Literal["table"] = "table"


class _Spelt(Settings):
    words: Literal["all", "rare"] = Field(
        default="all", description="which words are spelt: all, or those without a number; the others have a table"
    )
    character_embedding_size: int = Field(default=50, ge=1, description="size of the vectors of characters")


class C2wEmbedding(_Spelt):
    """Words from their characters by an LSTM in each direction, C2W (Ling et al. 2015); for data of words."""

    kind: Literal["c2w"]
    hidden_size: int = Field(default=150, ge=1, description="units of each LSTM")
    coupled: bool = Field(
        default=False, description="peepholes and coupled gates, as in the paper, instead of an ordinary LSTM; slow"
    )


class CharacterLstmEmbedding(_Spelt):
    """Words by the last state of a deep LSTM over their characters (Luong & Manning 2016); for data of words."""

    kind: Literal["character_lstm"]
    num_layers: int = Field(default=2, ge=1, description="of the LSTM; each has as many units as the model is wide")


_WordEmbedding = Annotated[
    Annotated[TableEmbedding, Tag("table")]
    | Annotated[C2wEmbedding, Tag("c2w")]
    | Annotated[CharacterLstmEmbedding, Tag("character_lstm")],
    discriminated_by("kind", default="table"),
]
WordEmbedding = Annotated[_WordEmbedding, BeforeValidator(from_name, json_schema_input_type=_WordEmbedding | str)]


class SpellingSettings(Settings):
    """An LSTM that spells the words which a decoder predicts as <unk> (Luong & Manning 2016); for data of words."""

    character_embedding_size: int = Field(default=50, ge=1, description="size of the vectors of characters")
    hidden_size: int | None = Field(default=None, ge=1, description="of each layer; null: the width of the model")
    num_layers: int = Field(default=2, ge=1, description="of the LSTM")
    path: Literal["separate", "same"] = Field(
        default="separate",
        description="separate: it begins with tanh(W x), x the decoder's vector; same: with x, which predicts the word",
    )

"""The settings of recurrent language models."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, Tag, model_validator

from structattn.settings.base import Settings, discriminated_by
from structattn.settings.embeddings import TableEmbedding, WordEmbedding
from structattn.settings.mechanisms import Nondeterministic, Stratified, Superposition
from structattn.settings.short_form import mechanism_from_short

_Stack = Annotated[
    Annotated[Superposition, Tag("superposition")]
    | Annotated[Nondeterministic, Tag("nondeterministic")]
    | Annotated[Stratified, Tag("stratified")],
    discriminated_by("attention", default="superposition"),
]
RecurrentStackSettings = Annotated[_Stack, BeforeValidator(mechanism_from_short, json_schema_input_type=_Stack | str)]


class RecurrentSettings(Settings):
    """What all recurrent language models share; by default those of DuSell & Chiang (2024)."""

    hidden_size: int = Field(default=100, ge=1, description="hidden units")
    stack: RecurrentStackSettings | None = Field(
        default=None, description="a stack that the network controls, in full or in short: nondeterministic-3-3-5"
    )
    embedding_size: int | None = Field(
        default=None, ge=1, description="size of embeddings that are learnt; null: tokens are given one-hot"
    )
    embedding: WordEmbedding = Field(
        default=TableEmbedding(),
        description="where embeddings come from: table, c2w or character_lstm, by name or with its fields",
    )
    init_scale: float = Field(default=0.1, gt=0, description="s of U(-s, s), from which weights are drawn")

    @model_validator(mode="after")
    def _words_fit(self) -> Self:
        if isinstance(self.embedding, TableEmbedding):
            return self
        if self.embedding_size is None:
            raise ValueError(f"{self.embedding.kind} needs embedding_size, the size of the vectors that it makes")
        if self.embedding.words == "rare":
            raise ValueError("a language model reads rare words as <unk>: words: rare leaves it nothing to spell")
        return self


class LstmSettings(RecurrentSettings):
    """An LSTM language model of one layer, alone or with a stack (DuSell & Chiang 2024)."""

    kind: Literal["lstm"]


class ElmanSettings(RecurrentSettings):
    """An Elman network as a language model, alone or with a stack (Li et al. 2024)."""

    kind: Literal["rnn"]
    activation: Literal["tanh", "relu"] = Field(default="tanh", description="of the hidden units")

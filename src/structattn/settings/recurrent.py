"""Settings of recurrent language models."""

from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from structattn.settings.base import MAX_SIZE, Settings, union_of
from structattn.settings.embeddings import TableEmbedding, WordEmbedding
from structattn.settings.mechanisms import MECHANISMS
from structattn.settings.short_form import mechanism_from_short

if TYPE_CHECKING:
    RecurrentStackSettings: TypeAlias = Settings
else:
    _Stack = union_of(
        {entry.name: entry.recurrent_stack for entry in MECHANISMS.values() if entry.recurrent_stack is not None},
        field="attention",
        default="superposition",
    )
    RecurrentStackSettings = Annotated[
        _Stack, BeforeValidator(mechanism_from_short, json_schema_input_type=_Stack | str)
    ]


class RecurrentSettings(Settings):
    """Base class of recurrent language models; the defaults are those of DuSell & Chiang (2024)."""

    hidden_size: int = Field(default=100, ge=1, le=MAX_SIZE, description="number of hidden units")
    stack: RecurrentStackSettings | None = Field(
        default=None,
        description="stack of the network, a mapping or a short form such as nondeterministic-3-3-5; null: none",
    )
    embedding_size: int | None = Field(
        default=None, ge=1, le=MAX_SIZE, description="size of the learned embeddings; null: one-hot vectors instead"
    )
    embedding: WordEmbedding = Field(
        default=TableEmbedding(),
        description="kind of the embeddings: table, c2w or character_lstm, a name or a mapping with its fields",
    )
    weight_init: Literal["uniform", "xavier", "lecun"] = Field(
        default="uniform",
        description="initial weights; uniform: Xavier uniform for the output layer and the projections to a "
        "superposition or stratified stack, U(-s, s) for others (code of DuSell & Chiang 2024); xavier: Xavier uniform "
        "for the projections to a nondeterministic stack, too (their text); lecun: normal with variance 1 / fan_in for "
        "all linear maps, as Haiku draws them (code of Li et al. 2024)",
    )
    init_scale: float = Field(
        default=0.1, gt=0, description="s of the uniform distribution U(-s, s) of other initial weights"
    )

    @model_validator(mode="after")
    def _check_embedding(self) -> Self:
        if isinstance(self.embedding, TableEmbedding):
            return self
        if self.embedding_size is None:
            raise ValueError(f"embedding: {self.embedding.kind} needs embedding_size, the size of the word vectors")
        if self.embedding.words == "rare":
            raise ValueError(
                "embedding: words: rare is for the source of a translation; out-of-vocabulary words of a language "
                "model's input are <unk>"
            )
        return self


class LstmSettings(RecurrentSettings):
    """LSTM language model with one layer, optionally with a stack (DuSell & Chiang 2024)."""

    kind: Literal["lstm"]


class ElmanSettings(RecurrentSettings):
    """Elman network as a language model, optionally with a stack (Li et al. 2024)."""

    kind: Literal["rnn"]
    activation: Literal["tanh", "relu"] = Field(default="tanh", description="activation of the hidden units")

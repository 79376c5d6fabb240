"""Settings of recurrent language models."""

from functools import partial
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from structattn.settings.base import NumLayers, OneOf, Probability, Settings, Size
from structattn.settings.embeddings import TableEmbedding, TextEmbedding
from structattn.settings.layers import mechanism_from_short
from structattn.settings.mechanisms import MECHANISMS


def _stacks() -> list[type[Settings]]:
    return [entry.recurrent_stack.settings for entry in MECHANISMS.values() if entry.recurrent_stack is not None]


_from_short = partial(mechanism_from_short, fits=lambda entry: entry.recurrent_stack)
RecurrentStackSettings = Annotated[Settings, OneOf("attention", "superposition", _from_short, _stacks)]


class RecurrentSettings(Settings):
    """Base class of recurrent language models; the defaults are those of DuSell & Chiang (2024)."""

    hidden_size: Size = Field(default=100, description="number of hidden units")
    stack: RecurrentStackSettings | None = Field(
        default=None,
        description="stack of the network, a mapping or a short form such as nondeterministic-3-3-5; null: none",
    )
    embedding_size: Size | None = Field(
        default=None, description="size of the learned embeddings; null: one-hot vectors instead"
    )
    embedding: TextEmbedding = TableEmbedding()
    num_layers: NumLayers = Field(
        default=1, description="number of layers; the first reads the stack, the last controls it"
    )
    learned_initial_state: bool = Field(
        default=False, description="learn the hidden states before the first step, as tanh(p); false: 0"
    )
    join_reading: bool = Field(
        default=False,
        description="predict from the hidden state and the stack's reading of the same step (+R in DuSell & Cotterell "
        "2025); false: from the hidden state, which has seen the reading of the step before",
    )
    tied_embeddings: bool = Field(
        default=False,
        description="share the weights of embeddings and output layer, which then has no bias; the embeddings have the "
        "size of the output, hidden_size or with join_reading more, and are not multiplied by its square root",
    )
    dropout: Probability = Field(
        default=0.0, description="dropout rate of embeddings, between layers and before the output layer"
    )
    weight_init: Literal["uniform", "xavier", "xavier_actions", "lecun"] = Field(
        default="uniform",
        description="initial weights; uniform: Xavier uniform for the output layer and the projections to a "
        "superposition or stratified stack, U(-s, s) for others (code of DuSell & Chiang 2024); xavier: Xavier uniform "
        "for the projections to a nondeterministic stack, too (their text); xavier_actions: for those to its actions "
        "only (code of DuSell & Cotterell 2025); lecun: normal with variance 1 / fan_in for "
        "all linear maps, as Haiku draws them (code of Li et al. 2024)",
    )
    init_scale: PositiveFloat = Field(
        default=0.1, description="s of the uniform distribution U(-s, s) of other initial weights"
    )

    @property
    def is_deep(self) -> bool:
        """Whether the model has what a network of one layer with the paper's fixed start lacks."""
        return self.num_layers > 1 or self.learned_initial_state or self.join_reading or self.dropout > 0

    @model_validator(mode="after")
    def _check_deep(self) -> Self:
        if self.join_reading and self.stack is None:
            raise ValueError("join_reading needs a stack")
        if self.tied_embeddings and (self.embedding_size is not None or not isinstance(self.embedding, TableEmbedding)):
            raise ValueError("tied_embeddings determines the embeddings; expected no embedding_size and no embedding")
        if self.weight_init == "lecun" and (self.is_deep or self.tied_embeddings):
            raise ValueError(
                "weight_init: lecun is for one layer without num_layers, dropout or ties; expected another"
            )
        return self

    @model_validator(mode="after")
    def _check_embedding(self) -> Self:
        if self.embedding_size is None and not isinstance(self.embedding, TableEmbedding):
            raise ValueError(f"embedding: {self.embedding.kind} needs embedding_size, the size of the word vectors")
        return self


class LstmSettings(RecurrentSettings):
    """LSTM language model, by default with one layer, optionally with a stack (DuSell & Chiang 2024)."""

    kind: Literal["lstm"]


class ElmanSettings(RecurrentSettings):
    """Elman network as a language model, optionally with a stack (Li et al. 2024)."""

    kind: Literal["rnn"]
    activation: Literal["tanh", "relu"] = Field(default="tanh", description="activation of the hidden units")

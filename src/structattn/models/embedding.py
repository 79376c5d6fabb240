"""Token embeddings with positions."""

import math
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention import Streams
from structattn.attention.positions.absolute import SinusoidalPositions
from structattn.operators.common.checks import require_lengths
from structattn.operators.common.dropout import checked_rate, dropout
from structattn.support.shapes import Float, Int, Lengths
from structattn.support.special_tokens import CLASS_OFFSET


class Embedding(nn.Module):
    """x_t = Dropout(sqrt(d) table[token_t] + position_t); without the factor if not ``scaled``.

    The table has one row per class, and <bos> shares the row of <eos>, because inputs contain only one of the two. With
    ``full_table`` it has one row per id, as tied output weights need; with ``first_id`` one per id from there on.

    Args:
        vocabulary_size: number of ids: <pad> 0, <bos> 1, <eos> 2, and the symbols.
        d_model: d.
        positions: called with (first, count), returns vectors (count, d) to add; None: no positions.
        dropout: rate for the output in training.
        full_table: one row per id.
        num_mask_tokens: rows of a full table for ids after the vocabulary.
        scaled: multiply by sqrt(d).
        first_id: the id of the first row; ids below share it.
    """

    def __init__(
        self,
        vocabulary_size: int,
        d_model: int,
        positions: nn.Module | None = None,
        dropout: float = 0.0,
        full_table: bool = False,
        num_mask_tokens: int = 0,
        scaled: bool = True,
        first_id: int = CLASS_OFFSET,
    ) -> None:
        super().__init__()
        if vocabulary_size <= CLASS_OFFSET:
            raise ValueError(f"vocabulary_size={vocabulary_size}; expected at least 3: <pad>, <bos> and <eos>")
        self.vocabulary_size, self.dropout, self.full_table = vocabulary_size, checked_rate(dropout), full_table
        self.first_id = 0 if full_table else first_id
        self.table = nn.Embedding(vocabulary_size - self.first_id + num_mask_tokens, d_model)
        self.positions, self.factor = positions, math.sqrt(d_model) if scaled else 1.0

    def forward(
        self, tokens: Int[Tensor, "batch time"], first: int = 0, lengths: Lengths = None
    ) -> Float[Tensor, "batch time d_model"]:
        """Return the embeddings of tokens at the positions from ``first`` on; ``lengths`` are those of whole texts."""
        rows = (tokens - self.first_id).clamp(min=0) if self.first_id else tokens
        x: Tensor = self.table(rows) * self.factor
        if self.positions is not None:
            x = x + positions_of(self.positions, first, tokens, lengths).to(x.dtype)
        return dropout(x, self.dropout) if self.training else x

    def embed_step(self, tokens: Int[Tensor, " batch"], position: int) -> Float[Tensor, "batch d_model"]:
        """Return the embeddings of one token per sequence, all at ``position``."""
        return self.forward(tokens[:, None], position)[:, 0]

    def token_embeddings(self, tokens: Int[Tensor, "*tokens"]) -> Float[Tensor, "*tokens d_model"]:
        """Return the rows of the table that belong to tokens."""
        rows: Tensor = self.table((tokens - self.first_id).clamp(min=0) if self.first_id else tokens)
        return rows

    def class_embeddings(self) -> Float[Tensor, "classes d_model"]:
        """Return the embedding of each class, the output matrix of a model with tied weights."""
        if self.first_id == CLASS_OFFSET:
            return self.table.weight
        return self.table.weight[CLASS_OFFSET - self.first_id : self.vocabulary_size - self.first_id]


class TwoStreamEmbedding(nn.Module):
    """Separate embeddings and positions for each stream (the Discrete Transformer paper, section 5).

    Args:
        syntactic: for g.
        semantic: for h; the output matrix of a model with tied weights.
    """

    def __init__(self, syntactic: Embedding, semantic: Embedding) -> None:
        super().__init__()
        self.syntactic, self.semantic = syntactic, semantic

    def forward(self, tokens: Int[Tensor, "batch time"], first: int = 0, lengths: Lengths = None) -> Streams:
        """Return both embeddings of each token."""
        return Streams(self.syntactic(tokens, first, lengths), self.semantic(tokens, first, lengths))

    def embed_step(self, tokens: Int[Tensor, " batch"], position: int) -> Streams:
        """Return both embeddings of one token per sequence, all at ``position``."""
        return Streams(self.syntactic.embed_step(tokens, position), self.semantic.embed_step(tokens, position))

    def token_embeddings(self, tokens: Int[Tensor, " tokens"]) -> Streams:
        """Return the rows of both tables that belong to tokens."""
        return Streams(self.syntactic.token_embeddings(tokens), self.semantic.token_embeddings(tokens))

    def class_embeddings(self) -> Float[Tensor, "classes d_model"]:
        """Return the semantic embedding of each class."""
        return self.semantic.class_embeddings()


def positions_of(
    positions: nn.Module, first: int, tokens: Int[Tensor, "batch count"], lengths: Lengths
) -> Float[Tensor, "*#batch count d_model"]:
    """Return what positions add to embeddings; those that count from the end count from that of each text."""
    batch, count = tokens.shape
    backward = isinstance(positions, SinusoidalPositions) and positions.direction == "backward"
    if backward and lengths is not None:
        require_lengths(lengths, batch)
    added: Tensor = positions(first, count, lengths=lengths) if backward else positions(first, count)
    return added


def class_logits(
    x: Float[Tensor, "*batch d_model"], output: nn.Module | None, embedding: Any
) -> Float[Tensor, "*batch classes"]:
    """Return the logits of hidden states by the output layer; None: by the weights of an embedding with a full table.

    Class c stands for id c + 2.
    """
    logits: Tensor = F.linear(x, embedding.class_embeddings()) if output is None else output(x)
    return logits


def logits_of_ids(classes: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch ids"]:
    """Return logits of ids, given those of classes: -inf for <pad> and <bos>, which are never predicted."""
    return F.pad(classes, (CLASS_OFFSET, 0), value=-math.inf)


def max_positions(embedding: nn.Module) -> int | None:
    """Return the number of positions that an embedding supports; None: any."""
    limits = (getattr(module, "max_positions", None) for module in embedding.modules())
    return min((limit for limit in limits if limit is not None), default=None)

"""Tokens as vectors."""

import math

from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.attention import Streams
from structattn.attention.positions.learned import LearnedPositions
from structattn.operators.common.dropout import dropout
from structattn.support.special_tokens import CLASS_OFFSET


class Embedding(nn.Module):
    """x_t = Dropout(sqrt(d) table[token_t] + position_t).

    The table has a row for every class only, and <bos> takes the row of <eos>, which is never an input where <bos> is;
    or, ``whole``, a row for every id, as a table needs that is an output matrix as well.

    Args:
        vocabulary_size: all ids: <pad> 0, <bos> 1, <eos> 2, and the symbols.
        d_model: d.
        positions: called with (first, count), gives what is added to those positions (count, d); None adds nothing.
        dropout: rate for what comes out in training.
        whole: a row for every id.
        masks: how many rows a whole table has for ids after the vocabulary's.
    """

    def __init__(
        self,
        vocabulary_size: int,
        d_model: int,
        positions: nn.Module | None = None,
        dropout: float = 0.0,
        whole: bool = False,
        masks: int = 0,
    ) -> None:
        super().__init__()
        if vocabulary_size <= CLASS_OFFSET:
            raise ValueError(f"vocabulary_size={vocabulary_size}; expected at least 3: <pad>, <bos> and <eos>")
        self.vocabulary_size, self.dropout, self.whole = vocabulary_size, dropout, whole
        self.table = nn.Embedding(vocabulary_size + masks if whole else vocabulary_size - CLASS_OFFSET, d_model)
        self.positions = positions

    def forward(self, tokens: Int[Tensor, "batch time"], first: int = 0) -> Float[Tensor, "batch time d_model"]:
        """The vectors of tokens that stand at the positions from ``first`` on."""
        rows = tokens if self.whole else (tokens - CLASS_OFFSET).clamp(min=0)
        x: Tensor = self.table(rows) * math.sqrt(self.table.embedding_dim)
        if self.positions is not None:
            x = x + self.positions(first, tokens.shape[1])
        return dropout(x, self.dropout, self.training)

    def one(self, tokens: Int[Tensor, " batch"], position: int) -> Float[Tensor, "batch d_model"]:
        """The vectors of tokens that all stand at one position."""
        return self.forward(tokens[:, None], position)[:, 0]

    def class_rows(self) -> Float[Tensor, "classes d_model"]:
        """The row of each class, the output matrix of a model with tied weights."""
        return self.table.weight[CLASS_OFFSET : self.vocabulary_size] if self.whole else self.table.weight


class TwoStreamEmbedding(nn.Module):
    """Tables and positions of its own for each stream (the Discrete Transformer paper, section 5).

    Args:
        syntactic: for g.
        semantic: for h, whose rows are the output matrix of a model with tied weights.
    """

    def __init__(self, syntactic: Embedding, semantic: Embedding) -> None:
        super().__init__()
        self.syntactic, self.semantic = syntactic, semantic

    def forward(self, tokens: Int[Tensor, "batch time"], first: int = 0) -> Streams:
        """Two vectors for each token."""
        return Streams(self.syntactic(tokens, first), self.semantic(tokens, first))

    def one(self, tokens: Int[Tensor, " batch"], position: int) -> Streams:
        """Two vectors for each of the tokens that all stand at one position."""
        return Streams(self.syntactic.one(tokens, position), self.semantic.one(tokens, position))

    def class_rows(self) -> Float[Tensor, "classes d_model"]:
        """The semantic row of each class."""
        return self.semantic.class_rows()


def longest_of(embedding: nn.Module) -> int | None:
    """How many positions an embedding has vectors for; None: as many as there are."""
    found = [module.max_positions for module in embedding.modules() if isinstance(module, LearnedPositions)]
    return min(found, default=None)

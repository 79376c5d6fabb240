"""Tokens as vectors, some of them by their spelling."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.models.characters.composition import Composition
from structattn.models.embedding import NEVER_PREDICTED
from structattn.operators.common.dropout import dropout


class SpelledEmbedding(nn.Module):
    """x_t = Dropout(sqrt(d) e(token_t) + position_t), e from a table for some words, from characters for the others.

    The lowest ids have rows in the table, as in an ``Embedding`` that is not whole: the special tokens, or all words of
    the vocabulary. Those after them are spelt: words of the vocabulary by ``spellings``, and ids past it, rare words
    that have no number, by what is given with them.

    Cost: each different word of a batch is composed once, however often it occurs.

    Args:
        vocabulary_size: all ids of the vocabulary.
        width: d.
        composition: from spellings to vectors of d numbers.
        spellings: those of the last words of the vocabulary; no rows: all have a vector of their own.
        positions: called with (first, count), gives what is added to those positions (count, d); None adds nothing.
        dropout: rate for what comes out in training.
    """

    spellings: Tensor

    def __init__(
        self,
        vocabulary_size: int,
        width: int,
        composition: Composition,
        spellings: Int[Tensor, "spelt characters"],
        positions: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.vocabulary_size, self.dropout = vocabulary_size, dropout
        self.first_spelt = vocabulary_size - len(spellings)
        self.table = nn.Embedding(self.first_spelt - NEVER_PREDICTED, width)
        self.composition = composition
        self.register_buffer("spellings", spellings.to(torch.int32), persistent=False)  # the data have them
        self.positions = positions

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        first: int = 0,
        rare: Int[Tensor, "rare characters"] | None = None,
    ) -> Float[Tensor, "batch time width"]:
        """The vectors of tokens that stand at the positions from ``first`` on.

        Args:
            tokens: ids; ``vocabulary_size + k`` is the word that row k of ``rare`` spells.
            first: the position of the first one.
            rare: spellings of words without a number.
        """
        different, places = torch.unique(tokens, return_inverse=True)
        x = self._vectors(different, rare)[places] * math.sqrt(self.table.embedding_dim)
        if self.positions is not None:
            x = x + self.positions(first, tokens.shape[1])
        return dropout(x, self.dropout, self.training)

    def one(self, tokens: Int[Tensor, " batch"], position: int) -> Float[Tensor, "batch width"]:
        """The vectors of tokens that all stand at one position."""
        return self.forward(tokens[:, None], position)[:, 0]

    def _vectors(self, rising: Int[Tensor, " tokens"], rare: Tensor | None) -> Float[Tensor, "tokens width"]:
        in_table, numbered = (int((rising < end).sum()) for end in (self.first_spelt, self.vocabulary_size))
        rows = self.table((rising[:in_table] - NEVER_PREDICTED).clamp(min=0))
        spellings = self.spellings[rising[in_table:numbered] - self.first_spelt].long()
        if rare is not None:
            spellings = _above(spellings, rare[rising[numbered:] - self.vocabulary_size])
        longest = int((spellings != 0).sum(1).max()) if len(spellings) else 1
        return torch.cat([rows, self.composition(spellings[:, :longest]).to(rows.dtype)])


def _above(first: Int[Tensor, "some _"], second: Int[Tensor, "others _"]) -> Int[Tensor, "all _"]:
    """Rows of spellings above others, with pads where they are shorter."""
    width = max(first.shape[1], second.shape[1])
    return torch.cat([F.pad(part, (0, width - part.shape[1])) for part in (first, second)])

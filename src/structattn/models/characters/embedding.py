"""Tokens as vectors, some of them by their spelling."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.models.characters.composition import Composition
from structattn.operators.common.dropout import dropout
from structattn.support.special_tokens import CLASS_OFFSET


class SpelledEmbedding(nn.Module):
    """x_t = Dropout(sqrt(d) e(token_t) + position_t), e from a table for some words, from characters for the others.

    The lowest ids have rows in the table, as in an ``Embedding`` that is not whole: the special tokens, or all words of
    the vocabulary. Those after them are spelt: words of the vocabulary by ``spellings``, and ids past it, rare words
    that have no number, by what is given with them.

    Cost: each different word of a batch is composed once, however often it occurs. In evaluation, under ``no_grad``,
    vectors of the vocabulary's words are kept until the weights change in any way that torch counts, which a write
    through ``.data`` is not; a search reads the same words at every step.

    Args:
        vocabulary_size: all ids of the vocabulary.
        d_model: d.
        composition: from spellings to vectors of d numbers.
        spellings: those of the last words of the vocabulary; no rows: all have a vector of their own.
        positions: called with (first, count), gives what is added to those positions (count, d); None adds nothing.
        dropout: rate for what comes out in training.
    """

    spellings: Tensor

    def __init__(
        self,
        vocabulary_size: int,
        d_model: int,
        composition: Composition,
        spellings: Int[Tensor, "spelt characters"],
        positions: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.vocabulary_size, self.dropout = vocabulary_size, dropout
        self.first_spelt = vocabulary_size - len(spellings)
        self.table = nn.Embedding(self.first_spelt - CLASS_OFFSET, d_model)
        self.composition = composition
        self.register_buffer("spellings", spellings.to(torch.int32), persistent=False)  # the data have them
        self.positions = positions
        self._kept: _Kept | None = None

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        first: int = 0,
        rare: Int[Tensor, "rare characters"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
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

    def one(self, tokens: Int[Tensor, " batch"], position: int) -> Float[Tensor, "batch d_model"]:
        """The vectors of tokens that all stand at one position."""
        return self.forward(tokens[:, None], position)[:, 0]

    def _vectors(self, rising: Int[Tensor, " tokens"], rare: Tensor | None) -> Float[Tensor, "tokens d_model"]:
        in_table, numbered = (int((rising < end).sum()) for end in (self.first_spelt, self.vocabulary_size))
        rows = self.table((rising[:in_table] - CLASS_OFFSET).clamp(min=0))
        spelt = rising[in_table:numbered] - self.first_spelt
        others = None if rare is None else rare[rising[numbered:] - self.vocabulary_size]
        if self.training or torch.is_grad_enabled() or torch.is_inference_mode_enabled() or rows.is_inference():
            self._kept = None  # fused optimizers, whose step may follow, change weights without torch's counting it
            spellings = self.spellings[spelt].long()
            return torch.cat([rows, self._composed(spellings if others is None else _above(spellings, others), rows)])
        known = [rows, self._known(spelt, rows)]
        return torch.cat(known if others is None else [*known, self._composed(others, rows)])

    def __getstate__(self) -> dict[str, Any]:
        """Copies begin without the vectors that are kept."""
        return {**self.__dict__, "_kept": None}

    def _composed(self, spellings: Int[Tensor, "words characters"], like: Tensor) -> Float[Tensor, "words d_model"]:
        longest = int((spellings != 0).sum(1).max()) if len(spellings) else 1
        return self.composition(spellings[:, :longest]).to(like.dtype)

    def _known(self, spelt: Int[Tensor, " words"], like: Tensor) -> Float[Tensor, "words d_model"]:
        """The vectors of some of the ``spellings``, composed where that has not been done with these weights."""
        weights = tuple((weight.data_ptr(), weight._version) for weight in self.parameters())
        kind = like.device.type
        cast_to = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        made_with = (like.dtype, cast_to, weights)
        if self._kept is None or self._kept.made_with != made_with:
            none = like.new_zeros(len(self.spellings), like.shape[1])
            self._kept = _Kept(made_with, none, torch.zeros_like(none[:, 0], dtype=torch.bool))
        missing = spelt[~self._kept.there[spelt]]
        if len(missing):
            self._kept.vectors[missing] = self._composed(self.spellings[missing].long(), like)
            self._kept.there[missing] = True
        return self._kept.vectors[spelt]


@dataclass(frozen=True)
class _Kept:
    """Vectors of words, which of them there are, and the state of the weights that they were made with."""

    made_with: tuple[object, ...]
    vectors: Float[Tensor, "words d_model"]
    there: Bool[Tensor, " words"]


def _above(first: Int[Tensor, "some _"], second: Int[Tensor, "others _"]) -> Int[Tensor, "all _"]:
    """Rows of spellings above others, with pads where they are shorter."""
    width = max(first.shape[1], second.shape[1])
    return torch.cat([F.pad(part, (0, width - part.shape[1])) for part in (first, second)])

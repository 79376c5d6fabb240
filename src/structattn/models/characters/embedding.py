"""Words composed of their characters by LSTMs: C2W (Ling et al. 2015), and that of Luong & Manning (2016)."""

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.models.embedding import positions_of
from structattn.models.lstm import apply_lstm
from structattn.operators.common.checks import is_autocast
from structattn.operators.common.dropout import checked_rate, dropout
from structattn.support.shapes import Bool, Float, Int, Lengths
from structattn.support.special_tokens import CLASS_OFFSET, PAD


class CoupledLstm(nn.Module):
    """An LSTM with peepholes and coupled gates (Ling et al. 2015): one layer, batch first, called like torch's.

        i_t = sigmoid(W_i x_t + U_i h_{t-1} + p_i * c_{t-1} + b_i)
        c_t = (1 - i_t) * c_{t-1} + i_t * tanh(W_c x_t + U_c h_{t-1} + b_c)
        o_t = sigmoid(W_o x_t + U_o h_{t-1} + p_o * c_t + b_o)
        h_t = o_t * tanh(c_t)

    Peepholes are diagonal: one weight per hidden unit.
    """

    def __init__(self, inputs: int, hidden_size: int) -> None:
        super().__init__()
        self.input, self.recurrent = (
            nn.Linear(inputs, 3 * hidden_size),
            nn.Linear(hidden_size, 3 * hidden_size, bias=False),
        )
        self.peepholes = nn.Parameter(torch.zeros(2, hidden_size))

    def forward(
        self, x: Float[Tensor, "batch time inputs"]
    ) -> tuple[Float[Tensor, "batch time units"], Float[Tensor, "batch units"]]:
        """Return the states h of all steps and the last c, starting from zeros."""
        input_peephole, output_peephole = self.peepholes
        hidden = cell = x.new_zeros(x.shape[0], self.recurrent.in_features)
        states = []
        for gates in self.input(x).unbind(1):
            for_input, for_cell, for_output = (gates + self.recurrent(hidden)).chunk(3, dim=1)
            opened = torch.sigmoid(for_input + input_peephole * cell)
            cell = cell + opened * (torch.tanh(for_cell) - cell)
            hidden = torch.sigmoid(for_output + output_peephole * cell) * torch.tanh(cell)
            states.append(hidden)
        return torch.stack(states, dim=1), cell


@runtime_checkable
class Composition(Protocol):
    """A map from spellings to word embeddings; equal spellings have equal embeddings."""

    def __call__(self, spellings: Int[Tensor, "words characters"]) -> Float[Tensor, "words d_model"]:
        """Return the embeddings of spellings ``<bos> c1 .. cm <eos>``, padded with <pad>."""
        ...


class BidirectionalComposition(nn.Module):
    """C2W: e_w = D^f s^f_m + D^b s^b_0 + b_d (Ling et al. 2015).

    s^f_m and s^b_0 are the last states of a forward and a backward LSTM over the characters, including the boundary
    marks; both start from zeros.

    Cost: two LSTM steps for each character of the longest word, for each word.

    Args:
        characters: size of the character vocabulary, special tokens included.
        coupled: use LSTMs with peepholes and coupled gates, as in the paper, instead of torch's.
    """

    def __init__(
        self,
        characters: int,
        d_model: int,
        character_embedding_size: int = 50,
        hidden_size: int = 150,
        coupled: bool = False,
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(characters, character_embedding_size)
        lstm = CoupledLstm if coupled else _lstm
        self.forwards, self.backwards = (
            lstm(character_embedding_size, hidden_size),
            lstm(character_embedding_size, hidden_size),
        )
        self.output = nn.Linear(2 * hidden_size, d_model)  # D^f and D^b, concatenated

    def forward(self, spellings: Int[Tensor, "words characters"]) -> Float[Tensor, "words d_model"]:
        """Return the embedding of each word."""
        lengths = (spellings != PAD).sum(1)
        positions = torch.arange(spellings.shape[1], device=spellings.device)
        reversed_spellings = spellings.gather(1, (lengths[:, None] - 1 - positions).clamp(min=0))
        ends = [
            _last_state(_hidden_states(lstm, self.table(order)), lengths)
            for lstm, order in ((self.forwards, spellings), (self.backwards, reversed_spellings))
        ]
        vectors: Tensor = self.output(torch.cat(ends, dim=1))
        return vectors


class ForwardComposition(nn.Module):
    """The last state of the top layer of a forward LSTM over the characters (Luong & Manning 2016).

    It starts from zeros, not from the context, so that each distinct word of a batch is composed once.

    Args:
        characters: size of the character vocabulary, special tokens included.
        d_model: size of word embeddings and of each layer.
    """

    def __init__(self, characters: int, d_model: int, character_embedding_size: int = 50, num_layers: int = 2) -> None:
        super().__init__()
        self.table = nn.Embedding(characters, character_embedding_size)
        self.forwards = _lstm(character_embedding_size, d_model, num_layers)

    def forward(self, spellings: Int[Tensor, "words characters"]) -> Float[Tensor, "words d_model"]:
        """Return the embedding of each word."""
        return _last_state(_hidden_states(self.forwards, self.table(spellings)), (spellings != PAD).sum(1))


def _lstm(inputs: int, hidden_size: int, num_layers: int = 1) -> nn.LSTM:
    return nn.LSTM(inputs, hidden_size, num_layers, batch_first=True)


def _hidden_states(lstm: nn.LSTM | CoupledLstm, x: Tensor) -> Tensor:
    return (apply_lstm(lstm, x) if isinstance(lstm, nn.LSTM) else lstm(x))[0]


def _last_state(
    states: Float[Tensor, "words characters units"], lengths: Int[Tensor, " words"]
) -> Float[Tensor, "words units"]:
    """Return the state after each word's last character, before any padding."""
    last = (lengths - 1)[:, None, None].expand(-1, -1, states.shape[2])
    return states.gather(1, last)[:, 0]


class SpelledEmbedding(nn.Module):
    """x_t = Dropout(sqrt(d) e(token_t) + position_t), with e from a table or composed from characters.

    The lowest ids have rows in the table, as in an ``Embedding`` without ``full_table``: the special tokens, or all
    words of the vocabulary. Other vocabulary words are composed from ``spellings``. Ids past the vocabulary are
    out-of-vocabulary words, composed from the spellings that come with the batch.

    Cost: each distinct word of a batch is composed once. In evaluation under ``no_grad``, the embeddings of vocabulary
    words are cached until the weights change. Changes are detected by torch's version counters, which writes through
    ``.data`` bypass.

    Args:
        composition: from spellings to embeddings of size d.
        spellings: of the last words of the vocabulary; no rows: all words have a row in the table.
        positions: called with (first, count), returns vectors (count, d) to add; None: no positions.
        dropout: rate for the output in training.
    """

    spellings: Tensor

    def __init__(
        self,
        vocabulary_size: int,
        d_model: int,
        composition: Composition,
        spellings: Int[Tensor, "composed characters"],
        positions: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.vocabulary_size, self.dropout = vocabulary_size, checked_rate(dropout)
        self.first_composed = vocabulary_size - len(spellings)
        self.table = nn.Embedding(self.first_composed - CLASS_OFFSET, d_model)
        self.composition = composition
        self.register_buffer("spellings", spellings.to(torch.int32), persistent=False)  # they are part of the data
        self.positions = positions
        self._cache: _EmbeddingCache | None = None

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        first: int = 0,
        lengths: Lengths = None,
        oov_spellings: Int[Tensor, "oov characters"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """Return the embeddings of tokens at the positions from ``first`` on.

        Args:
            tokens: ids; ``vocabulary_size + k`` is the word that row k of ``oov_spellings`` spells.
            first: the position of the first one.
            lengths: those of whole texts, for positions that count from the end.
            oov_spellings: of out-of-vocabulary words.
        """
        distinct, indices = torch.unique(tokens, return_inverse=True)
        x = self._embeddings(distinct, oov_spellings)[indices] * math.sqrt(self.table.embedding_dim)
        if self.positions is not None:
            x = x + positions_of(self.positions, first, tokens, lengths).to(x.dtype)
        return dropout(x, self.dropout) if self.training else x

    def embed_step(self, tokens: Int[Tensor, " batch"], position: int) -> Float[Tensor, "batch d_model"]:
        """Return the embeddings of one token per sequence, all at ``position``."""
        return self.forward(tokens[:, None], position)[:, 0]

    def token_embeddings(self, tokens: Int[Tensor, " tokens"]) -> Float[Tensor, "tokens d_model"]:
        """Return the embeddings of vocabulary tokens, from the table or composed, without positions."""
        distinct, indices = torch.unique(tokens, return_inverse=True)
        return self._embeddings(distinct, None)[indices]

    def _embeddings(
        self, tokens: Int[Tensor, " tokens"], oov_spellings: Tensor | None
    ) -> Float[Tensor, "tokens d_model"]:
        in_table, in_vocabulary = (int((tokens < end).sum()) for end in (self.first_composed, self.vocabulary_size))
        rows = self.table((tokens[:in_table] - CLASS_OFFSET).clamp(min=0))
        composed = tokens[in_table:in_vocabulary] - self.first_composed
        others = None if oov_spellings is None else oov_spellings[tokens[in_vocabulary:] - self.vocabulary_size]
        if self.training or torch.is_grad_enabled() or torch.is_inference_mode_enabled() or rows.is_inference():
            self._cache = None  # fused optimizers change weights without a new version
            spellings = self.spellings[composed].long()
            return torch.cat(
                [rows, self._compose(spellings if others is None else _concatenate_padded(spellings, others), rows)]
            )
        embeddings = [rows, self._cached(composed, rows)]
        return torch.cat(embeddings if others is None else [*embeddings, self._compose(others, rows)])

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles have an empty cache."""
        return {**self.__dict__, "_cache": None}

    def _compose(self, spellings: Int[Tensor, "words characters"], like: Tensor) -> Float[Tensor, "words d_model"]:
        longest = int((spellings != 0).sum(1).max()) if len(spellings) else 1
        return self.composition(spellings[:, :longest]).to(like.dtype)

    def _cached(self, composed: Int[Tensor, " words"], like: Tensor) -> Float[Tensor, "words d_model"]:
        """Return the embeddings of some of the ``spellings``, from the cache if the weights have not changed."""
        weights = tuple((weight.data_ptr(), weight._version) for weight in self.parameters())
        cast_to = torch.get_autocast_dtype(like.device.type) if is_autocast(like.device) else None
        key = (like.dtype, cast_to, weights)
        known = self._cache  # other threads may replace it meanwhile
        cache = known if known is not None and known.key == key else self._empty_cache(key, like)
        missing = composed[~cache.filled[composed]]
        if len(missing):
            cache.vectors[missing] = self._compose(self.spellings[missing].long(), like)
            cache.filled[missing] = True
        if cache is not known:
            self._cache = cache
        return cache.vectors[composed]

    def _empty_cache(self, key: tuple[object, ...], like: Tensor) -> "_EmbeddingCache":
        none = like.new_zeros(len(self.spellings), like.shape[1])
        return _EmbeddingCache(key, none, torch.zeros_like(none[:, 0], dtype=torch.bool))


@dataclass(frozen=True)
class _EmbeddingCache:
    """Cached embeddings, a mask of those that are filled, and the versions of the weights."""

    key: tuple[object, ...]
    vectors: Float[Tensor, "words d_model"]
    filled: Bool[Tensor, " words"]


def _concatenate_padded(first: Int[Tensor, "some _"], second: Int[Tensor, "others _"]) -> Int[Tensor, "all _"]:
    """Concatenate spellings, padded to the same length."""
    width = max(first.shape[1], second.shape[1])
    return torch.cat([F.pad(part, (0, width - part.shape[1])) for part in (first, second)])


def require_untied(embedding: nn.Module, output: nn.Module | None) -> None:
    """Raise ValueError if the output is tied to an embedding without a full table."""
    if output is None and isinstance(embedding, SpelledEmbedding):
        raise ValueError("a SpelledEmbedding cannot be tied to the output; expected output=nn.Linear")

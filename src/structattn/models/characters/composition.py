"""Word embeddings composed from characters."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.models.characters.coupled import CoupledLstm
from structattn.models.lstm import apply_lstm
from structattn.support.special_tokens import PAD


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
        d_model: size of word embeddings.
        character_embedding_size: size of character embeddings.
        hidden_size: of each LSTM.
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
        reversed_spellings = spellings.gather(1, (lengths[:, None] - 1 - _positions(spellings)).clamp(min=0))
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
        character_embedding_size: size of character embeddings.
        num_layers: of the LSTM.
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


def _positions(spellings: Tensor) -> Tensor:
    return torch.arange(spellings.shape[1], device=spellings.device)


def _last_state(
    states: Float[Tensor, "words characters units"], lengths: Int[Tensor, " words"]
) -> Float[Tensor, "words units"]:
    """Return the state after each word's last character, before any padding."""
    last = (lengths - 1)[:, None, None].expand(-1, -1, states.shape[2])
    return states.gather(1, last)[:, 0]

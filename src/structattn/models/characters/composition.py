"""The vector of a word from its characters."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.models.characters.coupled import CoupledLstm
from structattn.models.lstm import apply_lstm
from structattn.support.special_tokens import PAD


@runtime_checkable
class Composition(Protocol):
    """From spellings to vectors; equal spellings give equal vectors."""

    def __call__(self, spellings: Int[Tensor, "words characters"]) -> Float[Tensor, "words d_model"]:
        """Spellings are ``<bos> c1 .. cm <eos>``, then <pad>."""
        ...


class BidirectionalComposition(nn.Module):
    """C2W: e_w = D^f s^f_m + D^b s^b_0 + b_d (Ling et al. 2015).

    s^f_m is the last state of an LSTM that reads the word forwards, s^b_0 that of another one that reads it backwards,
    both from states of zeros. The two marks at the word's ends count as characters.

    Cost: characters of the longest word x words; two steps of an LSTM for each.

    Args:
        characters: the size of their vocabulary, special ones included.
        d_model: of the vectors of words.
        character_embedding_size: of the vectors of characters.
        hidden_size: of each LSTM.
        coupled: LSTMs with peepholes and coupled gates, as in the paper; else those of torch.
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
        self.output = nn.Linear(2 * hidden_size, d_model)  # D^f beside D^b

    def forward(self, spellings: Int[Tensor, "words characters"]) -> Float[Tensor, "words d_model"]:
        """The vector of each word."""
        lengths = (spellings != PAD).sum(1)
        turned = spellings.gather(1, (lengths[:, None] - 1 - _places(spellings)).clamp(min=0))
        ends = [
            _at_end(_hidden_states(lstm, self.table(order)), lengths)
            for lstm, order in ((self.forwards, spellings), (self.backwards, turned))
        ]
        vectors: Tensor = self.output(torch.cat(ends, dim=1))
        return vectors


class ForwardComposition(nn.Module):
    """The last state of the top layer of a deep LSTM that reads the word forwards (Luong & Manning 2016).

    It begins with zeros, whatever stands before the word, so that each different word of a batch is read once.

    Args:
        characters: the size of their vocabulary, special ones included.
        d_model: of the vectors of words, and so the units of each layer.
        character_embedding_size: of the vectors of characters.
        num_layers: of the LSTM.
    """

    def __init__(self, characters: int, d_model: int, character_embedding_size: int = 50, num_layers: int = 2) -> None:
        super().__init__()
        self.table = nn.Embedding(characters, character_embedding_size)
        self.forwards = _lstm(character_embedding_size, d_model, num_layers)

    def forward(self, spellings: Int[Tensor, "words characters"]) -> Float[Tensor, "words d_model"]:
        """The vector of each word."""
        return _at_end(_hidden_states(self.forwards, self.table(spellings)), (spellings != PAD).sum(1))


def _lstm(inputs: int, hidden_size: int, num_layers: int = 1) -> nn.LSTM:
    return nn.LSTM(inputs, hidden_size, num_layers, batch_first=True)


def _hidden_states(lstm: nn.LSTM | CoupledLstm, x: Tensor) -> Tensor:
    return (apply_lstm(lstm, x) if isinstance(lstm, nn.LSTM) else lstm(x))[0]


def _places(spellings: Tensor) -> Tensor:
    return torch.arange(spellings.shape[1], device=spellings.device)


def _at_end(
    states: Float[Tensor, "words characters units"], lengths: Int[Tensor, " words"]
) -> Float[Tensor, "words units"]:
    """The state after each word's last character: what was read of the pads after it is never seen."""
    last = (lengths - 1)[:, None, None].expand(-1, -1, states.shape[2])
    return states.gather(1, last)[:, 0]

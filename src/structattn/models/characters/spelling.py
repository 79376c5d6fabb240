"""The spelling of a word from the vector at which it was predicted."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from structattn.models.lstm import apply_lstm
from structattn.support.special_tokens import CLASS_OFFSET


@dataclass(frozen=True)
class SpellingState:
    """The states of all layers: a value, never mutated."""

    hidden: Float[Tensor, "layers batch units"]
    cell: Float[Tensor, "layers batch units"]

    def select(self, indices: Int[Tensor, " chosen"]) -> "SpellingState":
        """The states of some members of the batch, in a new order."""
        return SpellingState(self.hidden[:, indices], self.cell[:, indices])


class SpellingDecoder(nn.Module):
    """p(c_1..m | x) = prod_t softmax(W h_t + b): a deep LSTM over characters (Luong & Manning 2016).

    x is the decoder's vector of the position that predicts ``<unk>``. The first layer's hidden state is tanh(W x), with
    a matrix of its own (the paper's separate path), or x itself (the same path); its cell, and the layers above, are 0.
    One mark stands before the first character and after the last: <bos> takes the row of <eos>.

    Args:
        characters: the size of their vocabulary, special ones included.
        d_model: of x.
        character_embedding_size: of the vectors of characters.
        hidden_size: of each layer; with ``separate=False`` the width of x.
        num_layers: of the LSTM.
        separate: which path.

    Raises:
        ValueError: the same path, and another number of units.
    """

    def __init__(
        self,
        characters: int,
        d_model: int,
        character_embedding_size: int = 50,
        hidden_size: int = 150,
        num_layers: int = 2,
        separate: bool = True,
    ) -> None:
        super().__init__()
        if not separate and hidden_size != d_model:
            raise ValueError(
                f"hidden_size={hidden_size}; the same path needs as many as the vector has numbers, {d_model}"
            )
        self.table = nn.Embedding(characters - CLASS_OFFSET, character_embedding_size)
        self.begin = nn.Linear(d_model, hidden_size, bias=False) if separate else None
        self.lstm = nn.LSTM(character_embedding_size, hidden_size, num_layers, batch_first=True)
        self.output = nn.Linear(hidden_size, characters - CLASS_OFFSET)

    def forward(
        self, x: Float[Tensor, "words d_model"], characters: Int[Tensor, "words time"]
    ) -> Float[Tensor, "words time classes"]:
        """Logits for the character after each; class c stands for id c + 2.

        Args:
            x: the vector from which each word begins.
            characters: ``<bos> c1 .. cm``; then <pad>.
        """
        return self._read(characters, self.initial_state(x))[0]

    def initial_state(self, x: Float[Tensor, "words d_model"]) -> SpellingState:
        """The state before the first character, which is <bos>."""
        first = x if self.begin is None else torch.tanh(self.begin(x))
        zeros = first.new_zeros(self.lstm.num_layers - 1, *first.shape)
        hidden = torch.cat([first[None], zeros])
        return SpellingState(hidden, torch.zeros_like(hidden))

    def step(
        self, characters: Int[Tensor, " words"], state: SpellingState
    ) -> tuple[Float[Tensor, "words classes"], SpellingState]:
        """Read one character more; logits for the next, and the state after it."""
        logits, state = self._read(characters[:, None], state)
        return logits[:, 0], state

    def _read(self, characters: Tensor, state: SpellingState) -> tuple[Tensor, SpellingState]:
        rows = (characters - CLASS_OFFSET).clamp(min=0)
        states, (hidden, cell) = apply_lstm(self.lstm, self.table(rows), (state.hidden, state.cell))
        return self.output(states), SpellingState(hidden, cell)

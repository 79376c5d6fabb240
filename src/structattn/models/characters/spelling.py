"""Character decoder that spells a word from the hidden state that predicted it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from structattn.models.lstm import apply_lstm
from structattn.support.shapes import Float, Int
from structattn.support.special_tokens import CLASS_OFFSET


@dataclass(frozen=True)
class SpellingState:
    """The states of all layers: an immutable value."""

    hidden: Float[Tensor, "layers batch units"]
    cell: Float[Tensor, "layers batch units"]

    def select(self, indices: Int[Tensor, " chosen"]) -> "SpellingState":
        """Return the states of some members of the batch, in the given order."""
        return SpellingState(self.hidden[:, indices], self.cell[:, indices])


class SpellingDecoder(nn.Module):
    """p(c_1..m | x) = prod_t softmax(W h_t + b): a deep LSTM over characters (Luong & Manning 2016).

    x is the decoder's hidden state that predicts ``<unk>``. The first layer's initial hidden state is tanh(W x) with a
    learned W (the paper's separate path), or x itself (the same path); its cell and the layers above start from 0. The
    same mark precedes the first character and follows the last: <bos> shares the row of <eos>.

    Args:
        characters: size of the character vocabulary, special tokens included.
        d_model: of x.
        hidden_size: of each layer; with ``separate=False`` the width of x.
        separate: use the separate path.

    Raises:
        ValueError: ``separate=False`` and hidden_size differs from d_model.
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
            raise ValueError(f"hidden_size={hidden_size}; separate=False needs hidden_size=d_model={d_model}")
        self.table = nn.Embedding(characters - CLASS_OFFSET, character_embedding_size)
        self.initial_projection = nn.Linear(d_model, hidden_size, bias=False) if separate else None
        self.lstm = nn.LSTM(character_embedding_size, hidden_size, num_layers, batch_first=True)
        self.output = nn.Linear(hidden_size, characters - CLASS_OFFSET)

    def forward(
        self, x: Float[Tensor, "words d_model"], characters: Int[Tensor, "words time"]
    ) -> Float[Tensor, "words time classes"]:
        """Return the logits of the next character at each position; class c stands for id c + 2.

        Args:
            x: the hidden state of each word.
            characters: ``<bos> c1 .. cm``; then <pad>.
        """
        return self._process(characters, self.initial_state(x))[0]

    def initial_state(self, x: Float[Tensor, "words d_model"]) -> SpellingState:
        """Return the state before the first character, which is <bos>."""
        first = x if self.initial_projection is None else torch.tanh(self.initial_projection(x))
        zeros = first.new_zeros(self.lstm.num_layers - 1, *first.shape)
        hidden = torch.cat([first[None], zeros])
        return SpellingState(hidden, torch.zeros_like(hidden))

    def step(
        self, characters: Int[Tensor, " words"], state: SpellingState
    ) -> tuple[Float[Tensor, "words classes"], SpellingState]:
        """Process one character of each word; return the logits of the next and the new state."""
        logits, state = self._process(characters[:, None], state)
        return logits[:, 0], state

    def _process(self, characters: Tensor, state: SpellingState) -> tuple[Tensor, SpellingState]:
        rows = (characters - CLASS_OFFSET).clamp(min=0)
        states, (hidden, cell) = apply_lstm(self.lstm, self.table(rows), (state.hidden, state.cell))
        return self.output(states), SpellingState(hidden, cell)

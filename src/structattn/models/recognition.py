"""Outputs of a model that recognizes a language: of the label, and for auxiliary losses (Butoi et al. 2025)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.models.embedding import Embedding
from structattn.support.shapes import Float


class RecognitionLogits(NamedTuple):
    """The outputs after each prefix; class 0 of the last two is <eos>, the others are the symbols.

    Args:
        label: positive if the prefix is accepted.
        language_modeling: the logits of the next symbol; None without this output.
        next_symbols: positive for the symbols that may follow; None without this output.
    """

    label: Float[Tensor, "*batch"]
    language_modeling: Float[Tensor, "*batch classes"] | None
    next_symbols: Float[Tensor, "*batch classes"] | None


class RecognitionHeads(nn.Module):
    """The outputs as one vector [label; language modeling; next symbols], the output layer of a language model.

    The output of the label and that of the next symbols are linear maps with biases; that of language modeling is tied
    to the embedding, without bias.

    Args:
        num_classes: the number of symbols, and <eos>.
        embedding: of the model, for language modeling; None: no such output.
        next_symbols: whether there is an output of next symbols.
    """

    def __init__(
        self, hidden_size: int, num_classes: int, embedding: Embedding | None = None, next_symbols: bool = False
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.label = nn.Linear(hidden_size, 1)
        self.next_symbols = nn.Linear(hidden_size, num_classes) if next_symbols else None
        self._tied = (embedding,)  # in a tuple, so that its weights are those of the model alone

    def reset_parameters(self) -> None:
        """Draw the weights by Xavier's uniform rule, and set the biases to 0."""
        for linear in (self.label, self.next_symbols):
            if linear is not None:
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)

    def forward(self, x: Float[Tensor, "*batch hidden"]) -> Float[Tensor, "*batch outputs"]:
        """Return the outputs of hidden states."""
        (embedding,) = self._tied
        outputs = [self.label(x)]
        if embedding is not None:
            outputs.append(F.linear(x, embedding.class_embeddings()))
        if self.next_symbols is not None:
            outputs.append(self.next_symbols(x))
        return torch.cat(outputs, -1)

    def split(self, outputs: Float[Tensor, "*batch outputs"]) -> RecognitionLogits:
        """Return the parts of the outputs."""
        (embedding,) = self._tied
        label, rest = outputs[..., 0], outputs[..., 1:]
        modeling, following = rest[..., : self.num_classes], rest[..., -self.num_classes :]
        return RecognitionLogits(
            label, None if embedding is None else modeling, None if self.next_symbols is None else following
        )

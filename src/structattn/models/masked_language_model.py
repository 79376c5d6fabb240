"""A language model that fills in what is masked."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention import Explanation
from structattn.models.embedding import Embedding
from structattn.models.layers import Layers


class MaskedLanguageModel(nn.Module):
    """p(w_t | the rest) = softmax(W h_t + b) for any position t (Li et al. 2024, equation 12).

    The same model answers questions: it reads the question and then a mask for each token of the answer, which are
    predicted all at once (section 4.2).

    Args:
        embedding: of the tokens that are read, with a row for a mask; the mask's id follows the vocabulary's.
        layers: softmax attention among them should see both sides; stack attention goes from left to right here, too.
        output: from vectors to logits; None takes the rows of the embedding's table, without bias.
    """

    def __init__(self, embedding: Embedding, layers: Layers, output: nn.Linear | None = None) -> None:
        super().__init__()
        self.mask = embedding.vocabulary_size
        self.embedding, self.layers, self.output = embedding, layers, output

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"] | None = None,
        predicted: Bool[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "... classes"]:
        """Logits for the token that belongs to a position; class c stands for id c + 2.

        Args:
            tokens: ids; <pad> from each length on.
            lengths: how many tokens of each sequence count; all where None. Logits past them mean nothing.
            predicted: the positions that are asked for; all where None.

        Returns:
            (B, T, classes), or (N, classes) for the N positions asked for, sequence by sequence.
        """
        x = self.layers(self.embedding(tokens), lengths)
        return self._logits(x if predicted is None else x[predicted])

    def attend(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> tuple[Float[Tensor, "batch time classes"], list[Float[Tensor, "batch heads time time"] | None]]:
        """What ``forward`` gives, and the weights of each layer's attention; see ``LanguageModel.attend``."""
        x, weights = self.layers.attend(self.embedding(tokens), lengths)
        return self._logits(x), [own for own, _ in weights]

    @torch.no_grad()
    def explain(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> list[Explanation]:
        """What each layer attends to, from the first to the last; dropout acts as it does in ``forward``."""
        return self.layers.explain(self.embedding(tokens), lengths)

    def _logits(self, x: Any) -> Tensor:
        return F.linear(x, self.embedding.class_rows()) if self.output is None else self.output(x)

"""A causal language model."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention import Explanation
from structattn.models.characters import SpelledEmbedding
from structattn.models.embedding import Embedding, TwoStreamEmbedding
from structattn.models.layers import Layers, LayersState


class LanguageModel(nn.Module):
    """p(w_t | w_1..t-1) = softmax(logits(w_1..t-1)): embeddings, layers, and a logit for each possible next token.

    Args:
        embedding: of the tokens that are read.
        layers: causal ones. Of two streams, the semantic one alone must come out of them.
        output: from vectors to logits; None takes the rows of the embedding's table, without bias.

    Raises:
        ValueError: the embedding's table is to be the output matrix, and its words are spelt.
    """

    def __init__(
        self,
        embedding: Embedding | SpelledEmbedding | TwoStreamEmbedding,
        layers: Layers,
        output: nn.Linear | None = None,
    ) -> None:
        super().__init__()
        if output is None and isinstance(embedding, SpelledEmbedding):
            raise ValueError("words that are spelt have no table for an output matrix; expected an output")
        self.embedding, self.layers, self.output = embedding, layers, output

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch time classes"]:
        """Logits for the token after each position; class c stands for id c + 2.

        Args:
            tokens: ids; <pad> from each length on.
            lengths: how many tokens of each sequence count; all where None. Logits past them mean nothing.
        """
        return self._logits(self.layers(self.embedding(tokens), lengths))

    def attend(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> tuple[Float[Tensor, "batch time classes"], list[Float[Tensor, "batch heads time time"] | None]]:
        """What ``forward`` gives, and the weights of each layer's attention, which a loss may take into account.

        Gradients flow through them. They are None for an attention that is absent or hands out none, as stacks do.
        """
        x, weights = self.layers.attend(self.embedding(tokens), lengths)
        return self._logits(x), [own for own, _ in weights]

    def initial_state(self, batch_size: int) -> LayersState:
        """The state before the first token, which is <bos>."""
        return self.layers.initial_state(batch_size)

    def step(
        self, tokens: Int[Tensor, " batch"], state: LayersState
    ) -> tuple[Float[Tensor, "batch classes"], LayersState]:
        """Read one token more; logits for the next, and the state after it."""
        x, state = self.layers.step(self.embedding.one(tokens, state.position), state)
        return self._logits(x), state

    @torch.no_grad()
    def explain(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None = None
    ) -> list[Explanation]:
        """What each layer attends to, from the first to the last; dropout acts as it does in ``forward``."""
        return self.layers.explain(self.embedding(tokens), lengths)

    def _logits(self, x: Any) -> Tensor:
        if self.output is not None:
            logits: Tensor = self.output(x)
            return logits
        assert not isinstance(self.embedding, SpelledEmbedding)
        return F.linear(x, self.embedding.class_rows())

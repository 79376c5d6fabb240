"""Language models: causal, and masked."""

from typing import Any, cast

import torch
from torch import Tensor, nn

from structattn.attention import Explanation
from structattn.models.block import HiddenStates
from structattn.models.characters.embedding import SpelledEmbedding, require_untied
from structattn.models.embedding import Embedding, TwoStreamEmbedding, class_logits
from structattn.models.layers import Layers, LayersState
from structattn.models.looped import LoopedLayers, LoopedState, PaddedLayers
from structattn.support.shapes import Bool, Float, Int, Lengths


class _TransformerLanguageModel(nn.Module):
    """Embeddings, layers and an output layer."""

    def __init__(
        self,
        embedding: Embedding | SpelledEmbedding | TwoStreamEmbedding,
        layers: Layers | LoopedLayers | PaddedLayers,
        output: nn.Module | None = None,
    ) -> None:
        super().__init__()
        require_untied(embedding, output)
        self.embedding, self.layers, self.output = embedding, layers, output

    def hidden_states(self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None) -> HiddenStates:
        """Return the hidden states before the output layer (B, T, d), of both streams if there are two."""
        return self.layers.hidden_states(self.embedding(tokens, 0, lengths), lengths)

    def attend(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None
    ) -> tuple[Float[Tensor, "batch time classes"], list[Float[Tensor, "batch heads time time"] | None]]:
        """Return the logits and each layer's self-attention weights, for losses that depend on both.

        The weights are differentiable, and None for layers that have none, such as stacks.
        """
        x, weights = self.layers.attend(self.embedding(tokens, 0, lengths), lengths)
        return self._logits(x), [own for own, _ in weights]

    @torch.no_grad()
    def explain(self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None) -> list[Explanation]:
        """Return the attention weights of each layer, first layer first; dropout is active in training mode."""
        return self.layers.explain(self.embedding(tokens, 0, lengths), lengths)

    def _logits(self, x: Any) -> Tensor:
        return class_logits(x, self.output, self.embedding)


class LanguageModel(_TransformerLanguageModel):
    """p(w_t | w_1..t-1) = softmax(logits(w_1..t-1)): embeddings, layers and an output layer.

    Args:
        embedding: of the input tokens.
        layers: causal. With two streams, they must return the semantic stream only.
        output: from hidden states to logits; None: tied to the embedding, without bias.

    Raises:
        ValueError: the output is tied to an embedding without a full table.
    """

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Lengths = None
    ) -> Float[Tensor, "batch time classes"]:
        """Return the logits of the token after each position; class c stands for id c + 2.

        Args:
            tokens: ids; <pad> from each length on.
            lengths: number of tokens per sequence; None: no padding. Logits at padding are undefined.

        Returns:
            (B, T, classes); with ``PaddedLayers`` more positions, those of the blanks, follow the T.
        """
        return self._logits(self.layers(self.embedding(tokens, 0, lengths), lengths))

    def initial_state(self, batch_size: int) -> LayersState | LoopedState:
        """Return the state before the first token, which is <bos>."""
        return self.layers.initial_state(batch_size)

    def step(
        self, tokens: Int[Tensor, " batch"], state: LayersState | LoopedState
    ) -> tuple[Float[Tensor, "batch classes"], LayersState | LoopedState]:
        """Process one token of each sequence; return the logits of the next and the new state."""
        x, state = cast(Any, self.layers).step(self.embedding.embed_step(tokens, state.position), state)
        return self._logits(x), state


class MaskedLanguageModel(_TransformerLanguageModel):
    """p(w_t | the rest) = softmax(W h_t + b) for any position t (Li et al. 2024, equation 12).

    It also answers questions: the input is the question and one mask per answer token, which are predicted in parallel
    (section 4.2).

    Args:
        embedding: of the input tokens, with a row for the mask, whose id is the vocabulary size.
        layers: softmax attention should be bidirectional; stack attention is always left to right.
        output: from hidden states to logits; None: tied to the embedding, without bias.
    """

    def __init__(self, embedding: Embedding, layers: Layers | LoopedLayers, output: nn.Linear | None = None) -> None:
        super().__init__(embedding, layers, output)
        self.mask = embedding.vocabulary_size

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        lengths: Lengths = None,
        predicted: Bool[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "... classes"]:
        """Return the logits of the token at each position; class c stands for id c + 2.

        Args:
            tokens: ids; <pad> from each length on.
            lengths: number of tokens per sequence; None: no padding. Logits at padding are undefined.
            predicted: mask of the positions to predict; None: all.

        Returns:
            (B, T, classes), or (N, classes) for the N predicted positions, sequence by sequence.
        """
        x = self.layers(self.embedding(tokens, 0, lengths), lengths)
        return self._logits(x if predicted is None else x[predicted])

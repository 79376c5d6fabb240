"""An encoder-decoder: one sequence read whole, another predicted token by token."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention import Explanation
from structattn.models.embedding import Embedding, TwoStreamEmbedding
from structattn.models.layers import Layers, LayersState
from structattn.models.residual import Memory


@dataclass(frozen=True)
class EncoderDecoderExplanation:
    """What the layers of both sides attend to; a decoder's to its own past, and to the encoder's output ("cross")."""

    encoder: list[Explanation]
    decoder: list[Explanation]


class EncoderDecoder(nn.Module):
    """The transformer of Vaswani et al. (2017): p(target | source) = prod_t softmax(logits(target_1..t-1, source)).

    Args:
        target: embedding of what the decoder reads.
        encoder: its output is the memory that the decoder's cross-attention looks at. Its softmax attention should see
            both sides; stack attention goes from left to right here, too (DuSell & Chiang 2024, section 8).
        decoder: causal self-attention, and cross-attention in some layers at least. Of two streams, the semantic one
            alone must come out of it, and both out of the encoder.
        source: embedding of what the encoder reads; None shares the target's.
        output: from vectors to logits; None takes the rows of the target's table, without bias.
    """

    def __init__(
        self,
        target: Embedding | TwoStreamEmbedding,
        encoder: Layers,
        decoder: Layers,
        source: Embedding | TwoStreamEmbedding | None = None,
        output: nn.Linear | None = None,
    ) -> None:
        super().__init__()
        self.source, self.target = source, target
        self.encoder, self.decoder = encoder, decoder
        self.output = output

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch time"],
        source_lengths: Int[Tensor, " batch"] | None = None,
        target_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch time classes"]:
        """Logits for the target token after each position; class c stands for id c + 2.

        Args:
            source: ids that end with <eos>; <pad> from each length on.
            target: ids that begin with <bos>; <pad> from each length on.
            source_lengths: how many tokens of each source count; all where None.
            target_lengths: how many tokens of each target count; all where None. Logits past them mean nothing.
        """
        memory = self.encode(source, source_lengths)
        return self._logits(self.decoder(self.target(target), target_lengths, memory, source_lengths))

    def encode(
        self, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"] | None = None
    ) -> Memory:
        """The encoder's output (B, S, d), or two streams of it. What it holds past a length means nothing."""
        memory: Memory = self.encoder(self._source_embedding()(source), source_lengths)
        return memory

    def initial_state(
        self, source: Int[Tensor, "batch source"], source_lengths: Int[Tensor, " batch"] | None = None
    ) -> LayersState:
        """The decoder's state before the first target token, which is <bos>; it holds all it needs of the source."""
        return self.decoder.initial_state(source.shape[0], self.encode(source, source_lengths), source_lengths)

    def step(
        self, tokens: Int[Tensor, " batch"], state: LayersState
    ) -> tuple[Float[Tensor, "batch classes"], LayersState]:
        """Read one target token more; logits for the next, and the state after it."""
        x, state = self.decoder.step(self.target.one(tokens, state.position), state)
        return self._logits(x), state

    @torch.no_grad()
    def explain(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch time"],
        source_lengths: Int[Tensor, " batch"] | None = None,
        target_lengths: Int[Tensor, " batch"] | None = None,
    ) -> EncoderDecoderExplanation:
        """What each layer attends to, from the first to the last; dropout acts as it does in ``forward``."""
        encoder = self.encoder.explain(self._source_embedding()(source), source_lengths)
        memory = self.encode(source, source_lengths)
        decoder = self.decoder.explain(self.target(target), target_lengths, memory, source_lengths)
        return EncoderDecoderExplanation(encoder, decoder)

    def _source_embedding(self) -> Embedding | TwoStreamEmbedding:
        return self.target if self.source is None else self.source

    def _logits(self, x: Any) -> Tensor:
        return F.linear(x, self.target.class_rows()) if self.output is None else self.output(x)

"""An encoder-decoder: one sequence read whole, another predicted token by token."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from structattn.attention import Explanation
from structattn.models.characters import SpelledEmbedding, SpellingDecoder
from structattn.models.embedding import Embedding, TwoStreamEmbedding, longest_of
from structattn.models.layers import Layers, LayersState
from structattn.models.residual import Memory

AnyEmbedding = Embedding | SpelledEmbedding | TwoStreamEmbedding


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
        spelling: spells the words that are predicted as <unk> (Luong & Manning 2016); it begins with the vector from
            which <unk> was predicted, which has seen the source already.

    Raises:
        ValueError: the target's table is to be the output matrix, and it is spelt.
    """

    def __init__(
        self,
        target: AnyEmbedding,
        encoder: Layers,
        decoder: Layers,
        source: AnyEmbedding | None = None,
        output: nn.Linear | None = None,
        spelling: SpellingDecoder | None = None,
    ) -> None:
        super().__init__()
        if output is None and isinstance(target, SpelledEmbedding):
            raise ValueError("a target whose words are spelt has no table for an output matrix; expected an output")
        self.source, self.target = source, target
        self.encoder, self.decoder = encoder, decoder
        self.output, self.spelling = output, spelling

    @property
    def longest_source(self) -> int | None:
        """Tokens that a source may have, <eos> counted; None: any number."""
        return longest_of(self.target if self.source is None else self.source)

    @property
    def longest_target(self) -> int | None:
        """Tokens that a target may have, <eos> counted; None: any number."""
        return longest_of(self.target)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch time"],
        source_lengths: Int[Tensor, " batch"] | None = None,
        target_lengths: Int[Tensor, " batch"] | None = None,
        rare: Int[Tensor, "rare characters"] | None = None,
    ) -> Float[Tensor, "batch time classes"]:
        """Logits for the target token after each position; class c stands for id c + 2.

        Args:
            source: ids that end with <eos>; <pad> from each length on.
            target: ids that begin with <bos>; <pad> from each length on.
            source_lengths: how many tokens of each source count; all where None.
            target_lengths: how many tokens of each target count; all where None. Logits past them mean nothing.
            rare: spellings of source words without a number, for a ``SpelledEmbedding``, which see.
        """
        return self._logits(self.vectors(source, target, source_lengths, target_lengths, rare))

    def vectors(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch time"],
        source_lengths: Int[Tensor, " batch"] | None = None,
        target_lengths: Int[Tensor, " batch"] | None = None,
        rare: Int[Tensor, "rare characters"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """The vectors of which ``forward`` gives the logits."""
        memory = self.encode(source, source_lengths, rare)
        x: Tensor = self.decoder(self.target(target), target_lengths, memory, source_lengths)
        return x

    def with_spellings(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch time"],
        unknown: Bool[Tensor, "batch time"],
        spellings: Int[Tensor, "unknown spelling"],
        source_lengths: Int[Tensor, " batch"] | None = None,
        target_lengths: Int[Tensor, " batch"] | None = None,
        rare: Int[Tensor, "rare characters"] | None = None,
    ) -> tuple[Float[Tensor, "batch time classes"], Float[Tensor, "unknown spelling characterclasses"]]:
        """What ``forward`` gives, and logits for the characters of words that are <unk>; of a model that spells.

        Args:
            source: see ``forward``, and so for what is not described here.
            target: see there; words without a number are <unk>.
            unknown: the positions at which such words are predicted.
            spellings: their characters, in the order of the positions: ``<bos> c1 .. cm``; then <pad>.
            source_lengths: see there.
            target_lengths: see there.
            rare: see there.
        """
        assert self.spelling is not None
        x = self.vectors(source, target, source_lengths, target_lengths, rare)
        return self._logits(x), self.spelling(x[unknown], spellings)

    def encode(
        self,
        source: Int[Tensor, "batch source"],
        source_lengths: Int[Tensor, " batch"] | None = None,
        rare: Int[Tensor, "rare characters"] | None = None,
    ) -> Memory:
        """The encoder's output (B, S, d), or two streams of it. What it holds past a length means nothing."""
        memory: Memory = self.encoder(self._embedded(source, rare), source_lengths)
        return memory

    def initial_state(
        self,
        source: Int[Tensor, "batch source"],
        source_lengths: Int[Tensor, " batch"] | None = None,
        rare: Int[Tensor, "rare characters"] | None = None,
    ) -> LayersState:
        """The decoder's state before the first target token, which is <bos>; it holds all it needs of the source."""
        memory = self.encode(source, source_lengths, rare)
        return self.decoder.initial_state(source.shape[0], memory, source_lengths)

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
        rare: Int[Tensor, "rare characters"] | None = None,
    ) -> EncoderDecoderExplanation:
        """What each layer attends to, from the first to the last; dropout acts as it does in ``forward``."""
        encoder = self.encoder.explain(self._embedded(source, rare), source_lengths)
        memory = self.encode(source, source_lengths, rare)
        decoder = self.decoder.explain(self.target(target), target_lengths, memory, source_lengths)
        return EncoderDecoderExplanation(encoder, decoder)

    def _embedded(self, source: Tensor, rare: Tensor | None) -> Any:
        embedding = self.target if self.source is None else self.source
        return embedding(source, rare=rare) if isinstance(embedding, SpelledEmbedding) else embedding(source)

    def _logits(self, x: Any) -> Tensor:
        if self.output is not None:
            logits: Tensor = self.output(x)
            return logits
        assert not isinstance(self.target, SpelledEmbedding)
        return F.linear(x, self.target.class_rows())

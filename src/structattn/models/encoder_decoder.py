"""An encoder-decoder transformer."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from structattn.attention import Explanation
from structattn.models.block import Memory
from structattn.models.characters.embedding import SpelledEmbedding, require_untied
from structattn.models.characters.spelling import SpellingDecoder
from structattn.models.embedding import Embedding, TwoStreamEmbedding, class_logits, max_positions
from structattn.models.layers import Layers, LayersState
from structattn.support.shapes import Float, Int, Lengths

AnyEmbedding = Embedding | SpelledEmbedding | TwoStreamEmbedding


@dataclass(frozen=True)
class EncoderDecoderExplanation:
    """Attention weights of encoder and decoder; the decoder's include cross-attention (sublayer "cross")."""

    encoder: list[Explanation]
    decoder: list[Explanation]


@dataclass(frozen=True)
class EncoderDecoderWeights:
    """Differentiable attention weights of each layer; None for attention that is absent or has none, as stacks.

    Args:
        encoder: (B, H, S, S).
        decoder: self-attention (B, H, T, T) and cross-attention (B, H, T, S).
    """

    encoder: list[Tensor | None]
    decoder: list[tuple[Tensor | None, Tensor | None]]


class EncoderDecoder(nn.Module):
    """The transformer of Vaswani et al. (2017): p(target | source) = prod_t softmax(logits(target_1..t-1, source)).

    Args:
        target: embedding of the decoder's input.
        encoder: its output is the memory of cross-attention. Its softmax attention should be bidirectional; stack
            attention is left to right here, too (DuSell & Chiang 2024, section 8).
        decoder: causal self-attention, and cross-attention in at least one layer. With two streams, the encoder must
            return both and the decoder the semantic stream only.
        source: embedding of the encoder's input; None: shared with the target.
        output: from hidden states to logits; None: tied to the target embedding, without bias.
        spelling: spells words that are predicted as <unk>, starting from the hidden state that predicted <unk> (Luong &
            Manning 2016).

    Raises:
        ValueError: the output is tied to an embedding without a full table.
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
        require_untied(target, output)
        self.source, self.target = source, target
        self.encoder, self.decoder = encoder, decoder
        self.output, self.spelling = output, spelling

    @property
    def max_source_positions(self) -> int | None:
        """The maximal number of source tokens, <eos> included; None: any."""
        return max_positions(self.target if self.source is None else self.source)

    @property
    def max_target_positions(self) -> int | None:
        """The maximal number of target tokens, <eos> included; None: any."""
        return max_positions(self.target)

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch time"],
        source_lengths: Lengths = None,
        target_lengths: Lengths = None,
        oov_spellings: Int[Tensor, "oov characters"] | None = None,
    ) -> Float[Tensor, "batch time classes"]:
        """Return the logits of the target token after each position; class c stands for id c + 2.

        Args:
            source: ids that end with <eos>; <pad> from each length on.
            target: ids that begin with <bos>; <pad> from each length on.
            source_lengths: number of tokens per source; None: no padding.
            target_lengths: number of tokens per target; None: no padding. Logits at padding are undefined.
            oov_spellings: of out-of-vocabulary source words; see ``SpelledEmbedding``.
        """
        return self.logits(self.hidden_states(source, target, source_lengths, target_lengths, oov_spellings))

    def hidden_states(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch time"],
        source_lengths: Lengths = None,
        target_lengths: Lengths = None,
        oov_spellings: Int[Tensor, "oov characters"] | None = None,
    ) -> Float[Tensor, "batch time d_model"]:
        """Return the decoder's output, before the output layer."""
        memory = self.encode(source, source_lengths, oov_spellings)
        x: Tensor = self.decoder(self.target(target, 0, target_lengths), target_lengths, memory, source_lengths)
        return x

    def attended_hidden_states(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch time"],
        source_lengths: Lengths = None,
        target_lengths: Lengths = None,
        oov_spellings: Int[Tensor, "oov characters"] | None = None,
    ) -> tuple[Float[Tensor, "batch time d_model"], EncoderDecoderWeights]:
        """Return the decoder's output and the attention weights, for losses that depend on both."""
        memory, encoder = self.encoder.attend(self._embedded(source, source_lengths, oov_spellings), source_lengths)
        x, decoder = self.decoder.attend(self.target(target, 0, target_lengths), target_lengths, memory, source_lengths)
        return cast(Tensor, x), EncoderDecoderWeights([own for own, _ in encoder], decoder)

    def logits(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch classes"]:
        """Return the logits of the next token, given the decoder's output."""
        return class_logits(x, self.output, self.target)

    def encode(
        self,
        source: Int[Tensor, "batch source"],
        source_lengths: Lengths = None,
        oov_spellings: Int[Tensor, "oov characters"] | None = None,
    ) -> Memory:
        """Return the encoder's output (B, S, d), or two streams of it. Outputs at padding are undefined."""
        memory: Memory = self.encoder(self._embedded(source, source_lengths, oov_spellings), source_lengths)
        return memory

    def initial_state(
        self,
        source: Int[Tensor, "batch source"],
        source_lengths: Lengths = None,
        oov_spellings: Int[Tensor, "oov characters"] | None = None,
    ) -> LayersState:
        """Return the decoder's state before the first target token, which is <bos>; it includes the encoded source."""
        memory = self.encode(source, source_lengths, oov_spellings)
        return self.decoder.initial_state(source.shape[0], memory, source_lengths)

    def step(
        self, tokens: Int[Tensor, " batch"], state: LayersState
    ) -> tuple[Float[Tensor, "batch classes"], LayersState]:
        """Process one target token of each sequence; return the logits of the next and the new state."""
        x, state = self.decoder.step(self.target.embed_step(tokens, state.position), state)
        return self.logits(cast(Tensor, x)), state

    @torch.no_grad()
    def explain(
        self,
        source: Int[Tensor, "batch source"],
        target: Int[Tensor, "batch time"],
        source_lengths: Lengths = None,
        target_lengths: Lengths = None,
        oov_spellings: Int[Tensor, "oov characters"] | None = None,
    ) -> EncoderDecoderExplanation:
        """Return the attention weights of each layer, first layer first; dropout is active in training mode."""
        encoder = self.encoder.explain(self._embedded(source, source_lengths, oov_spellings), source_lengths)
        memory = self.encode(source, source_lengths, oov_spellings)
        decoder = self.decoder.explain(self.target(target, 0, target_lengths), target_lengths, memory, source_lengths)
        return EncoderDecoderExplanation(encoder, decoder)

    def _embedded(self, source: Tensor, lengths: Tensor | None, oov_spellings: Tensor | None) -> Any:
        embedding = self.target if self.source is None else self.source
        if isinstance(embedding, SpelledEmbedding):
            return embedding(source, 0, lengths, oov_spellings)
        return embedding(source, 0, lengths)

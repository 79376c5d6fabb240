"""Replacement of words predicted as <unk>: keep them, copy the attended source word, or spell them.

Hypotheses are processed once more, as whole sequences, to recover the attention weights or vectors from which <unk> was
predicted.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from structattn.attention import Explanation
from structattn.decoding import Hypothesis, pad_sequences, search_spellings
from structattn.models import EncoderDecoder
from structattn.support.errors import UsageError
from structattn.support.shapes import Bool, Float, Int
from structattn.support.special_tokens import BOS, UNK
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL, WordCharacterTokenizer

Unknown = Literal["keep", "copy", "spell"]


@dataclass(frozen=True)
class EncodedSources:
    """A batch of source sentences as the models' inputs.

    Args:
        inputs: for each model, ids that end with <eos>, and the spellings of the ids past its vocabulary.
        lengths: number of tokens of each sentence, <eos> included.
        words: of each sentence, where tokens are words.
    """

    inputs: tuple[tuple[Int[Tensor, "batch source"], Int[Tensor, "rare characters"] | None], ...]
    lengths: Int[Tensor, " batch"]
    words: Sequence[Sequence[str]]


@dataclass(frozen=True)
class UnknownWords:
    """The <unk> of some hypotheses."""

    models: Sequence[EncoderDecoder]
    sources: EncodedSources
    sentences: Sequence[int]
    hypotheses: Sequence[Hypothesis]

    @torch.no_grad()
    def copied(self) -> list[list[str]]:
        """Return, for each <unk> of each hypothesis, the source word with the greatest attention weight.

        The weights are those of the last layer with cross-attention, averaged over its heads and over models; <eos> is
        excluded, and the first among equals is taken.

        Raises:
            UsageError: a model has no cross-attention weights.
        """
        rows, inputs, lengths = self._decoder_inputs()
        source_lengths = self.sources.lengths[rows]
        weights = torch.stack(
            [
                last_cross_attention(model.explain(source[rows], inputs, source_lengths, lengths, rare).decoder)
                for model, (source, rare) in zip(self.models, self.sources.inputs, strict=True)
            ]
        ).mean(0)
        is_word = torch.arange(weights.shape[2], device=weights.device) < source_lengths[:, None] - 1  # not <eos>
        best = weights.masked_fill(~is_word[:, None], -1).argmax(2).tolist()
        return [
            [self.sources.words[sentence][attended[position]] for position in _unknown_positions(hypothesis)]
            for sentence, attended, hypothesis in zip(self.sentences, best, self.hypotheses, strict=True)
        ]

    @torch.no_grad()
    def spelled(
        self, speller: WordCharacterTokenizer, beam_size: int, known: Container[str] = ()
    ) -> list[list[tuple[str, float]]]:
        """Return, for each <unk> of each hypothesis, its most probable spelling, and its log p.

        ``<unk>`` itself is none, nor is a word of the vocabulary, which the model would not predict as <unk>, unless
        all spellings that are found are such words.

        Args:
            speller: turns characters into words.
            beam_size: hypotheses for each word; at least 2, for an alternative where one is ``<unk>``.
            known: the vocabulary.
        """
        rows, inputs, lengths = self._decoder_inputs()
        unknown = self._unknown_mask(inputs.shape)
        vectors = [
            model.hidden_states(source[rows], inputs, self.sources.lengths[rows], lengths, rare)[unknown]
            for model, (source, rare) in zip(self.models, self.sources.inputs, strict=True)
        ]
        decoders = [model.spelling for model in self.models if model.spelling is not None]
        count = max(2, beam_size)
        spellings = iter(search_spellings(decoders, vectors, count, n_best=count))
        return [
            [_new_word(next(spellings), speller, known) for _ in _unknown_positions(hypothesis)]
            for hypothesis in self.hypotheses
        ]

    def _decoder_inputs(self) -> tuple[Int[Tensor, " rows"], Int[Tensor, "rows time"], Int[Tensor, " rows"]]:
        """Return the sentence of each hypothesis, its tokens as inputs of the decoder, and its length."""
        device = self.sources.lengths.device
        inputs, lengths = pad_sequences([[BOS, *hypothesis.tokens[:-1]] for hypothesis in self.hypotheses], device)
        return torch.tensor(self.sentences, device=device), inputs, lengths

    def _unknown_mask(self, shape: torch.Size) -> Bool[Tensor, "rows time"]:
        mask = torch.zeros(shape, dtype=torch.bool)
        for row, hypothesis in zip(mask, self.hypotheses, strict=True):
            row[_unknown_positions(hypothesis)] = True
        return mask.to(self.sources.lengths.device)


def last_cross_attention(layers: Sequence[Explanation]) -> Float[Tensor, "batch time source"]:
    """Return the weights of the last layer with cross-attention, averaged over its heads.

    Raises:
        UsageError: no layer has cross-attention weights.
    """
    weights = [layer.weights for layer in layers if layer.sublayer == "cross"]
    if not weights:
        raise UsageError("unknown words cannot be copied: no layer of the decoder has cross-attention weights")
    return weights[-1].mean(1)


def _unknown_positions(hypothesis: Hypothesis) -> list[int]:
    return [position for position, token in enumerate(hypothesis.tokens) if token == UNK]


def _new_word(
    spellings: Sequence[Hypothesis], speller: WordCharacterTokenizer, known: Container[str]
) -> tuple[str, float]:
    words = [(speller.decode(spelling.text), spelling.log_probability) for spelling in spellings]
    possible = [pair for pair in words if pair[0] != UNKNOWN_SYMBOL]
    return next((pair for pair in possible if pair[0] not in known), possible[0])

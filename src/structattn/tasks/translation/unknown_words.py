"""Replacement of words predicted as <unk>: keep them, copy the attended source word, or spell them.

Hypotheses are processed once more, as whole sequences, to recover the attention weights or vectors from which <unk> was
predicted.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from structattn.decoding import Hypothesis, search_spellings
from structattn.models import EncoderDecoder
from structattn.support.shapes import Bool
from structattn.support.special_tokens import UNK
from structattn.tasks.translation.attended import EncodedSources, attended_positions, decoder_inputs
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL, WordCharacterTokenizer

Unknown = Literal["keep", "copy", "spell"]


@dataclass(frozen=True)
class UnknownWords:
    """The <unk> of some hypotheses."""

    models: Sequence[EncoderDecoder]
    sources: EncodedSources
    sentences: Sequence[int]
    hypotheses: Sequence[Hypothesis]

    def copied(self) -> list[list[str]]:
        """Return, for each <unk> of each hypothesis, the source word with the greatest attention weight.

        See ``attended_positions``.

        Raises:
            UsageError: a model has no cross-attention weights.
        """
        best = attended_positions(self.models, self.sources, self.sentences, self.hypotheses)
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
        rows, inputs, lengths = decoder_inputs(self.sources, self.sentences, self.hypotheses)
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

    def _unknown_mask(self, shape: torch.Size) -> Bool[Tensor, "rows time"]:
        mask = torch.zeros(shape, dtype=torch.bool)
        for row, hypothesis in zip(mask, self.hypotheses, strict=True):
            row[_unknown_positions(hypothesis)] = True
        return mask.to(self.sources.lengths.device)


def _unknown_positions(hypothesis: Hypothesis) -> list[int]:
    return [position for position, token in enumerate(hypothesis.tokens) if token == UNK]


def _new_word(
    spellings: Sequence[Hypothesis], speller: WordCharacterTokenizer, known: Container[str]
) -> tuple[str, float]:
    words = [(speller.decode(spelling.text), spelling.log_probability) for spelling in spellings]
    possible = [pair for pair in words if pair[0] != UNKNOWN_SYMBOL]
    return next((pair for pair in possible if pair[0] not in known), possible[0])

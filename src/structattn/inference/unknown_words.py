"""What stands where a model has predicted <unk>: that word itself, the attended word of the source, or a spelling.

Hypotheses are read once more for it, whole: what a model has seen at each step of the search comes out again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from structattn.attention import Explanation
from structattn.data.tokenization.spelling import Speller
from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL
from structattn.decoding import Hypothesis, pad_sequences, search_spellings
from structattn.models import EncoderDecoder
from structattn.support.errors import UsageError
from structattn.support.special_tokens import BOS, UNK

Unknown = Literal["keep", "copy", "spell"]


@dataclass(frozen=True)
class Sources:
    """Sentences as models read them.

    Args:
        read: for each model ids that end with <eos>, and the spellings of those past its vocabulary.
        lengths: of the sentences, <eos> counted.
        words: of each sentence, where symbols are words.
    """

    read: tuple[tuple[Int[Tensor, "batch source"], Int[Tensor, "rare characters"] | None], ...]
    lengths: Int[Tensor, " batch"]
    words: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Incomplete:
    """Hypotheses in which <unk> stands.

    Args:
        models: what found them, in evaluation mode.
        sources: the sentences.
        sentences: the number of each hypothesis's sentence.
        hypotheses: what was found.
    """

    models: Sequence[EncoderDecoder]
    sources: Sources
    sentences: Sequence[int]
    hypotheses: Sequence[Hypothesis]

    @torch.no_grad()
    def copied(self) -> list[list[str]]:
        """For each <unk> of each hypothesis the word of the source that was attended to most, the first of equals.

        Attention is that of the last layer which looks at the source, the mean over its heads, and over models.

        Raises:
            UsageError: a model looks at the source by no weights.
        """
        rows, inputs, lengths = self._again()
        source_lengths = self.sources.lengths[rows]
        weights = torch.stack(
            [
                attended(model.explain(source[rows], inputs, source_lengths, lengths, rare).decoder)
                for model, (source, rare) in zip(self.models, self.sources.read, strict=True)
            ]
        ).mean(0)
        is_word = torch.arange(weights.shape[2], device=weights.device) < source_lengths[:, None] - 1  # not <eos>
        best = weights.masked_fill(~is_word[:, None], -1).argmax(2).tolist()
        return [
            [self.sources.words[sentence][of_row[place]] for place in _places(hypothesis)]
            for sentence, of_row, hypothesis in zip(self.sentences, best, self.hypotheses, strict=True)
        ]

    @torch.no_grad()
    def spelt(self, speller: Speller, beam: int) -> list[list[tuple[str, float]]]:
        """For each <unk> of each hypothesis the likeliest spelling that is not ``<unk>``, and its log p.

        Args:
            speller: from characters to words.
            beam: hypotheses kept for each word; 2 at least, so that there is another word where one is ``<unk>``.
        """
        rows, inputs, lengths = self._again()
        unknown = self._unknown(inputs.shape)
        vectors = [
            model.vectors(source[rows], inputs, self.sources.lengths[rows], lengths, rare)[unknown]
            for model, (source, rare) in zip(self.models, self.sources.read, strict=True)
        ]
        decoders = [model.spelling for model in self.models if model.spelling is not None]
        found = iter(search_spellings(decoders, vectors, max(2, beam), n_best=2))
        return [[_word(next(found), speller) for _ in _places(hypothesis)] for hypothesis in self.hypotheses]

    def _again(self) -> tuple[Int[Tensor, " rows"], Int[Tensor, "rows time"], Int[Tensor, " rows"]]:
        """The sentence of each hypothesis, what the decoder reads of it, and its length."""
        device = self.sources.lengths.device
        inputs, lengths = pad_sequences([[BOS, *hypothesis.tokens[:-1]] for hypothesis in self.hypotheses], device)
        return torch.tensor(self.sentences, device=device), inputs, lengths

    def _unknown(self, shape: torch.Size) -> Bool[Tensor, "rows time"]:
        unknown = torch.zeros(shape, dtype=torch.bool)
        for row, hypothesis in zip(unknown, self.hypotheses, strict=True):
            row[_places(hypothesis)] = True
        return unknown.to(self.sources.lengths.device)


def _places(hypothesis: Hypothesis) -> list[int]:
    return [place for place, token in enumerate(hypothesis.tokens) if token == UNK]


def _word(found: Sequence[Hypothesis], speller: Speller) -> tuple[str, float]:
    words = ((speller.word(hypothesis.text), hypothesis.log_probability) for hypothesis in found)
    return next(word for word in words if word[0] != UNKNOWN_SYMBOL)


def attended(decoder: Sequence[Explanation]) -> Float[Tensor, "batch time source"]:
    """How much each target position takes from each source position in the last layer that looks at the source.

    Raises:
        UsageError: no layer does.
    """
    across = [record.weights for record in decoder if record.sublayer == "cross"]
    if not across:
        raise UsageError("no layer of the decoder looks at the source by weights: there is no attended word to copy")
    return across[-1].mean(1)

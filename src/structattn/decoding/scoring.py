"""How likely given texts are, read whole."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from structattn.decoding.ensemble import Ensemble
from structattn.decoding.logits import at_least_single
from structattn.decoding.stepper import padded
from structattn.models import EncoderDecoder, LanguageModel
from structattn.support.special_tokens import BOS, EOS, PADDING_CLASS, class_of


@dataclass(frozen=True)
class TextScores:
    """log p of texts, in nats.

    Args:
        per_token: log p(token | those before it, source); zeros past each text's end.
        lengths: the number of tokens of each text.
    """

    per_token: Float[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]

    @property
    def log_probabilities(self) -> Float[Tensor, " batch"]:
        """The sum over each text's tokens."""
        return self.per_token.sum(1)


@torch.no_grad()
def score_pairs(
    model: EncoderDecoder | Ensemble,
    source: Int[Tensor, "batch source"],
    texts: Sequence[Sequence[int]],
    source_lengths: Int[Tensor, " batch"] | None = None,
    rare: Int[Tensor, "rare characters"] | None = None,
) -> TextScores:
    """The logarithms of p(text | source); <unk> is a token like others, and not spelt.

    Cost: one forward pass, and memory for B * T * classes numbers.

    Args:
        model: in evaluation mode; models of an ensemble read the same source.
        source: ids that end with <eos>; <pad> from each length on.
        texts: one for each source: ids after <bos>, with <eos> at the end unless only a beginning is to be scored.
        source_lengths: how many tokens of each source count; all where None.
        rare: spellings of source words without a number, for models that read them; see ``EncoderDecoder.forward``.

    Raises:
        ValueError: a text holds <pad> or <bos>, or <eos> before its end, or there are not as many texts as sources.
    """
    if len(texts) != len(source):
        raise ValueError(f"{len(texts)} texts for {len(source)} sources; expected one for each")
    return _scored(
        lambda inputs, lengths: model(source, inputs, source_lengths, lengths, rare), _checked(texts), source.device
    )


@torch.no_grad()
def score_texts(
    model: LanguageModel | Ensemble, texts: Sequence[Sequence[int]], device: torch.device | str = "cpu"
) -> TextScores:
    """The logarithms of p(text) by a language model; everything else as in ``score_pairs``.

    Args:
        model: in evaluation mode.
        texts: ids after <bos>, with <eos> at the end unless only a beginning is to be scored.
        device: that of the model.
    """
    return _scored(model, _checked(texts), device)


def _scored(
    logits_of: Callable[[Tensor, Tensor], Tensor], texts: Sequence[Sequence[int]], device: torch.device | str
) -> TextScores:
    targets, lengths = padded(texts, device)
    if targets.numel() == 0:
        return TextScores(torch.zeros(targets.shape, device=device), lengths)
    inputs = F.pad(targets, (1, 0), value=BOS)[:, :-1]
    inputs = inputs.masked_fill(torch.arange(inputs.shape[1], device=inputs.device) >= lengths[:, None], 0)
    logits = at_least_single(logits_of(inputs, lengths))
    classes = class_of(targets).flatten()
    nats = F.cross_entropy(logits.flatten(0, 1), classes, ignore_index=PADDING_CLASS, reduction="none")
    return TextScores(-nats.view(targets.shape), lengths)


def _checked(texts: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
    for index, text in enumerate(texts):
        if any(token < EOS for token in text) or EOS in tuple(text)[:-1]:
            raise ValueError(f"text {index} is {list(text)}; expected no <pad>, no <bos>, and <eos> at its end only")
    return texts

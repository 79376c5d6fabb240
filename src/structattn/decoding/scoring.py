"""Log-probabilities of given texts, computed in one forward pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.decoding.ensemble import Ensemble
from structattn.decoding.stepper import pad_sequences
from structattn.models import EncoderDecoder, LanguageModel
from structattn.support.shapes import Float, Int, Lengths
from structattn.support.special_tokens import BOS, EOS, PADDING_CLASS, class_of


@dataclass(frozen=True)
class SequenceScores:
    """Log-probabilities of texts, in nats.

    Args:
        token_log_probs: log p(token | previous tokens, source); zero past the end of each text.
        lengths: the number of tokens of each text.
    """

    token_log_probs: Float[Tensor, "batch time"]
    lengths: Int[Tensor, " batch"]

    @property
    def log_probs(self) -> Float[Tensor, " batch"]:
        """The sum over the tokens of each text."""
        return self.token_log_probs.sum(1)


@torch.no_grad()
def score_pairs(
    model: EncoderDecoder | Ensemble,
    source: Int[Tensor, "batch source"],
    texts: Sequence[Sequence[int]],
    source_lengths: Lengths = None,
    rare: Int[Tensor, "rare characters"] | None = None,
) -> SequenceScores:
    """Return log p(text | source); <unk> is scored as a token, without its spelling.

    Cost: one forward pass, and memory for B * T * classes numbers.

    Args:
        model: in evaluation mode; all models of an ensemble are given the same source.
        source: ids that end with <eos>, padded with <pad>.
        texts: one for each source: ids after <bos>, with <eos> at the end unless only a beginning is to be scored.
        source_lengths: number of tokens of each source; None: no padding.
        rare: spellings of the ids past the source vocabulary; see ``EncoderDecoder.forward``.

    Raises:
        ValueError: a text holds <pad> or <bos>, or <eos> before its end, or there is not one text for each source.
    """
    if len(texts) != len(source):
        raise ValueError(f"{len(texts)} texts for {len(source)} sources; expected one for each")
    return _score(lambda inputs, lengths: model(source, inputs, source_lengths, lengths, rare), texts, source.device)


@torch.no_grad()
def score_texts(
    model: LanguageModel | Ensemble, texts: Sequence[Sequence[int]], device: torch.device | str = "cpu"
) -> SequenceScores:
    """Return log p(text) of a language model.

    Cost: one forward pass, and memory for B * T * classes numbers.

    Args:
        model: in evaluation mode.
        texts: ids after <bos>, with <eos> at the end unless only a beginning is to be scored.
        device: of the model.

    Raises:
        ValueError: a text holds <pad> or <bos>, or <eos> before its end.
    """
    return _score(model, texts, device)


def _score(
    model: Callable[[Tensor, Tensor], Tensor], texts: Sequence[Sequence[int]], device: torch.device | str
) -> SequenceScores:
    for index, text in enumerate(texts):
        if any(token < EOS for token in text) or EOS in tuple(text)[:-1]:
            raise ValueError(f"text {index} is {list(text)}; expected no <pad>, no <bos>, and <eos> at its end only")
    targets, lengths = pad_sequences(texts, device)
    if targets.numel() == 0:
        return SequenceScores(torch.zeros(targets.shape, device=device), lengths)
    inputs = F.pad(targets, (1, 0), value=BOS)[:, :-1]
    inputs = inputs.masked_fill(torch.arange(inputs.shape[1], device=inputs.device) >= lengths[:, None], 0)
    logits = model(inputs, lengths)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    classes = class_of(targets).flatten()
    losses = F.cross_entropy(logits.flatten(0, 1), classes, ignore_index=PADDING_CLASS, reduction="none")
    return SequenceScores(-losses.view(targets.shape), lengths)

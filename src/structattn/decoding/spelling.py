"""The second stage of decoding: the spelling of words that were predicted as <unk> (Luong & Manning 2016)."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.decoding.beam_search import beam_search
from structattn.decoding.ensemble import Ensemble
from structattn.decoding.hypothesis import Hypothesis
from structattn.decoding.length_rules import LengthRule, score
from structattn.decoding.presets import BeamSearch
from structattn.decoding.stepper import Start, Stepper
from structattn.models import SpellingDecoder
from structattn.support.special_tokens import BOS, EOS_CLASS, UNK_CLASS

MOST_CHARACTERS = 50


class WholeWords:
    """A ``Stepper`` over characters that gives no empty word, and no character that nobody knows.

    Args:
        model: predicts characters; class c stands for id c + 2, as everywhere.
    """

    def __init__(self, model: Stepper) -> None:
        self.model = model

    def step(self, tokens: Int[Tensor, " batch"], state: Any) -> tuple[Float[Tensor, "batch classes"], Any]:
        """What the model predicts, with -inf for <unk>, and after <bos> for <eos>."""
        logits, state = self.model.step(tokens, state)
        forbidden = torch.zeros_like(logits, dtype=torch.bool)
        forbidden[:, UNK_CLASS] = True
        forbidden[:, EOS_CLASS] = tokens == BOS
        return logits.masked_fill(forbidden, -math.inf), state


@torch.no_grad()
def spellings(
    models: Sequence[SpellingDecoder], vectors: Sequence[Float[Tensor, "words width"]], beam: int = 4, n_best: int = 1
) -> list[list[Hypothesis]]:
    """The likeliest spellings of each word that a beam search finds; never an empty one, nor one with <unk> in it.

    A word that does not end within ``MOST_CHARACTERS`` is cut there.

    Args:
        models: in evaluation mode; several predict as one, by the mean of their probabilities.
        vectors: for each model the vectors from which <unk> was predicted.
        beam: hypotheses kept.
        n_best: how many spellings of each word.

    Returns:
        Hypotheses of characters; log p is that among words that may come out.
    """
    starts = [Start(model.initial_state(x), _begun(x)) for model, x in zip(models, vectors, strict=True)]
    model: Stepper = models[0]
    start = starts[0]
    if len(models) > 1:
        ensemble = Ensemble(models)
        model, start = ensemble, ensemble.start(starts)
    return beam_search(WholeWords(model), start, MOST_CHARACTERS + 1, BeamSearch(beam), n_best)


def _begun(x: Tensor) -> Tensor:
    return torch.full((x.shape[0],), BOS, device=x.device)


def with_spellings(hypothesis: Hypothesis, characters: float, rule: LengthRule) -> Hypothesis:
    """The hypothesis with log p(words) + log p(characters), scored by the rule that ranked its words.

    Args:
        hypothesis: of words.
        characters: log p of the spelling of all its <unk>.
        rule: of the lengths of words.
    """
    total = torch.tensor(hypothesis.log_probability + characters, dtype=torch.float64)
    ranked = score(rule, total, torch.tensor(len(hypothesis.tokens)))
    return replace(hypothesis, log_probability=total.item(), score=ranked.item())

"""Second stage of two-stage decoding: spelling the words predicted as <unk> (Luong & Manning 2016)."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from structattn.decoding.beam_presets import BeamSearch, LengthPenalty, length_penalized
from structattn.decoding.beam_search import beam_search
from structattn.decoding.ensemble import start_together
from structattn.decoding.stepper import DecodingStart, Hypothesis
from structattn.models import SpellingDecoder
from structattn.support.shapes import Bool, Float, Int
from structattn.support.special_tokens import BOS, EOS_CLASS, UNK_CLASS

MAX_CHARACTERS = 50


def forbidden_characters(
    tokens: Int[Tensor, "words beam time"], words: Int[Tensor, " words"], num_classes: int
) -> Bool[Tensor, "words beam classes"]:
    """Return which classes may not follow in a spelling.

    <unk> never, <eos> not after <bos>, and after ``MAX_CHARACTERS`` characters nothing but <eos>.

    Args:
        tokens: <bos> and the characters so far.
        words: their indices; all words have the same rules.
        num_classes: of the model; class c stands for id c + 2.
    """
    length = tokens.shape[2] - 1
    forbidden = torch.full((num_classes,), length >= MAX_CHARACTERS, device=tokens.device)
    forbidden[UNK_CLASS], forbidden[EOS_CLASS] = True, length == 0
    return forbidden.expand(*tokens.shape[:2], -1)


@torch.no_grad()
def search_spellings(
    models: Sequence[SpellingDecoder],
    vectors: Sequence[Float[Tensor, "words d_model"]],
    beam_size: int = 4,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """Return the most probable spellings of each word found by beam search; none is empty or contains <unk>.

    Words have at most ``MAX_CHARACTERS`` characters.

    Args:
        models: in evaluation mode; several form an ensemble.
        vectors: for each model, the vectors from which <unk> was predicted.
        beam_size: the number of hypotheses for each word.
        n_best: the number of spellings of each word to return.

    Returns:
        Hypotheses of characters with their log p under the model, which also gives some to spellings that are not
        searched.
    """
    starts = [
        DecodingStart(model.initial_state(x), torch.full((len(x),), BOS, device=x.device))
        for model, x in zip(models, vectors, strict=True)
    ]
    model, start = start_together(models, starts)
    return beam_search(model, start, MAX_CHARACTERS + 1, BeamSearch(beam_size), n_best, forbid=forbidden_characters)


def add_spelling_score(hypothesis: Hypothesis, spelling_log_prob: float, penalty: LengthPenalty) -> Hypothesis:
    """Return the hypothesis with log p(words) + log p(characters), scored under a length penalty.

    Args:
        hypothesis: a sequence of words.
        spelling_log_prob: log p of the spellings of all its <unk>.
        penalty: applied to the number of words.
    """
    total = torch.tensor(hypothesis.log_probability + spelling_log_prob, dtype=torch.float64, device="cpu")
    score = length_penalized(penalty, total, len(hypothesis.tokens))
    return replace(hypothesis, log_probability=total.item(), score=score.item())

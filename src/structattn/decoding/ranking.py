"""The n best hypotheses of sentences that are done."""

import math
from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor

from structattn.decoding.beam import Hypotheses
from structattn.decoding.completed import Finished
from structattn.decoding.hypothesis import Hypothesis
from structattn.decoding.length_rules import score
from structattn.decoding.presets import BeamSearch
from structattn.support.special_tokens import PAD


def ranked(beam: Hypotheses, finished: Finished, search: BeamSearch, n_best: int) -> list[list[Hypothesis]]:
    """For each sentence the finished hypotheses, and the open ones where these are too few, each by falling score."""
    ended = _listed(finished.log_probabilities, finished.scores > -math.inf, finished.tokens, search)
    going_on = _listed(beam.log_probabilities, beam.log_probabilities > -math.inf, beam.tokens, search)
    return [(first + second)[:n_best] for first, second in zip(ended, going_on, strict=True)]


def _listed(
    log_probabilities: Float[Tensor, "batch places"],
    there: Tensor,
    tokens: Int[Tensor, "batch places time"],
    search: BeamSearch,
) -> list[list[Hypothesis]]:
    """The hypotheses that are there, as values; equals stay in their order."""
    lengths = (tokens[:, :, 1:] != PAD).sum(2)  # what was read first is no part of the text
    scores = score(search.ranking or search.rule, log_probabilities, lengths)
    columns = (there, lengths, tokens, log_probabilities, scores)
    return [_sentence(*rows) for rows in zip(*(column.tolist() for column in columns), strict=True)]


def _sentence(
    there: Sequence[bool],
    lengths: Sequence[int],
    tokens: Sequence[Sequence[int]],
    log_probabilities: Sequence[float],
    scores: Sequence[float],
) -> list[Hypothesis]:
    hypotheses = [
        Hypothesis(tuple(tokens[place][1 : lengths[place] + 1]), log_probabilities[place], scores[place])
        for place, is_there in enumerate(there)
        if is_there
    ]
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)

"""Unfinished and finished hypotheses of the sentences of a batch."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from structattn.decoding.beam.presets import LengthPenalty, length_penalized
from structattn.decoding.stepper import DecodingStart, Hypothesis
from structattn.support.special_tokens import PAD


@dataclass(frozen=True)
class Hypotheses:
    """Hypotheses of equal length, the same number for each sentence, best first; log p = -inf marks an empty slot.

    Args:
        log_probs: log-probability of the tokens after the first.
        tokens: the token that the model was given first, usually <bos>, and those that follow.
        parents: index, in the beam of the previous step, of the hypothesis that each one extends.
        finished: whether the last token is <eos>.
    """

    log_probs: Float[Tensor, "batch beam"]
    tokens: Int[Tensor, "batch beam time"]
    parents: Int[Tensor, "batch beam"]
    finished: Bool[Tensor, "batch beam"]

    @staticmethod
    def initial(start: DecodingStart) -> "Hypotheses":
        """Return one hypothesis without tokens for each sentence."""
        zeros = torch.zeros(len(start.tokens), 1, device=start.tokens.device)
        return Hypotheses(zeros, start.tokens[:, None, None], zeros.long(), zeros.bool())

    def select(self, sentences: Int[Tensor, " selected"]) -> "Hypotheses":
        """Return the hypotheses of some sentences."""
        return Hypotheses(*(x[sentences] for x in (self.log_probs, self.tokens, self.parents, self.finished)))

    def best(self, allowed: Bool[Tensor, "batch beam"], k: int) -> "Hypotheses":
        """Return the k best allowed hypotheses; fewer where no sentence has k, but at least one slot."""
        log_probs, order = self.log_probs.masked_fill(~allowed, -math.inf).sort(dim=1, descending=True, stable=True)
        num_filled = int((log_probs > -math.inf).sum(1).max()) if len(log_probs) else 0
        order = order[:, : max(1, min(k, num_filled))]
        tokens = self.tokens.take_along_dim(order[:, :, None], 1)
        parents, finished = self.parents.gather(1, order), self.finished.gather(1, order)
        return Hypotheses(log_probs[:, : order.shape[1]], tokens, parents, finished)


@dataclass(frozen=True)
class FinishedHypotheses:
    """Up to ``beam_size`` finished hypotheses of each sentence, best first; a score of -inf marks an empty slot.

    Args:
        scores: log-probabilities under the length penalty of the search.
        log_probs: as in ``Hypotheses``.
        tokens: as in ``Hypotheses``, with <pad> after <eos>.
    """

    scores: Float[Tensor, "batch beam"]
    log_probs: Float[Tensor, "batch beam"]
    tokens: Int[Tensor, "batch beam time"]

    @staticmethod
    def empty(batch_size: int, beam_size: int, device: torch.device) -> "FinishedHypotheses":
        """Return empty slots."""
        minus_inf = torch.full((batch_size, beam_size), -math.inf, device=device)
        tokens = torch.zeros(batch_size, beam_size, 0, dtype=torch.int64, device=device)
        return FinishedHypotheses(minus_inf, minus_inf, tokens)

    def select(self, sentences: Int[Tensor, " selected"]) -> "FinishedHypotheses":
        """Return the finished hypotheses of some sentences."""
        return FinishedHypotheses(self.scores[sentences], self.log_probs[sentences], self.tokens[sentences])

    def merge(self, candidates: Hypotheses, scores: Float[Tensor, "batch candidates"]) -> "FinishedHypotheses":
        """Return the best of these and of the candidates, these first among equals; a score of -inf excludes."""
        if not bool((scores > -math.inf).any()):
            return self
        beam_size, time = self.scores.shape[1], candidates.tokens.shape[2]
        scores, order = torch.cat([self.scores, scores], 1).sort(dim=1, descending=True, stable=True)
        scores, order = scores[:, :beam_size], order[:, :beam_size]
        log_probs = torch.cat([self.log_probs, candidates.log_probs], 1).gather(1, order)
        tokens = torch.cat([F.pad(self.tokens, (0, time - self.tokens.shape[2])), candidates.tokens], 1)
        return FinishedHypotheses(scores, log_probs, tokens.take_along_dim(order[:, :, None], 1))


def rank(beam: Hypotheses, finished: FinishedHypotheses, penalty: LengthPenalty, n_best: int) -> list[list[Hypothesis]]:
    """Return the n best hypotheses of each sentence: finished ones first, then unfinished ones, each by score."""
    first = _sorted(finished.log_probs, finished.scores > -math.inf, finished.tokens, penalty)
    second = _sorted(beam.log_probs, beam.log_probs > -math.inf, beam.tokens, penalty)
    return [(done + unfinished)[:n_best] for done, unfinished in zip(first, second, strict=True)]


def _sorted(
    log_probs: Float[Tensor, "batch beam"],
    filled: Bool[Tensor, "batch beam"],
    tokens: Int[Tensor, "batch beam time"],
    penalty: LengthPenalty,
) -> list[list[Hypothesis]]:
    lengths = (tokens[:, :, 1:] != PAD).sum(2)  # the first token is not part of the text
    columns = (filled, lengths, tokens, log_probs, length_penalized(penalty, log_probs, lengths))
    return [
        sorted(
            (
                Hypothesis(tuple(ids[1 : length + 1]), log_prob, score)
                for is_filled, length, ids, log_prob, score in zip(*sentence, strict=True)
                if is_filled
            ),
            key=lambda hypothesis: -hypothesis.score,
        )
        for sentence in zip(*(column.tolist() for column in columns), strict=True)
    ]

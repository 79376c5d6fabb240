"""The best finished hypotheses of each sentence so far."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from structattn.decoding.beam import Hypotheses


@dataclass(frozen=True)
class Finished:
    """Places for ``beam`` finished hypotheses of each sentence, best first; a score of -inf is an empty place.

    Args:
        scores: under the rule of the search.
        log_probabilities: as in ``Hypotheses``.
        tokens: as there, with <pad> after each one's <eos>.
    """

    scores: Float[Tensor, "batch beam"]
    log_probabilities: Float[Tensor, "batch beam"]
    tokens: Int[Tensor, "batch beam time"]

    @staticmethod
    def none(batch: int, beam: int, device: torch.device) -> "Finished":
        """Empty places."""
        nothing = torch.full((batch, beam), -math.inf, device=device)
        return Finished(nothing, nothing, torch.zeros(batch, beam, 0, dtype=torch.int64, device=device))

    def select(self, sentences: Int[Tensor, " chosen"]) -> "Finished":
        """Those of some sentences."""
        return Finished(self.scores[sentences], self.log_probabilities[sentences], self.tokens[sentences])

    def only(self, kept: Bool[Tensor, "batch beam"]) -> "Finished":
        """Without those that were pushed out."""
        return Finished(self.scores.masked_fill(~kept, -math.inf), self.log_probabilities, self.tokens)

    def with_more(self, found: Hypotheses, scores: Float[Tensor, "batch found"]) -> "Finished":
        """The best of these and of the found ones, the earlier first among equals; -inf keeps a found one out."""
        if not bool((scores > -math.inf).any()):
            return self
        beam, time = self.scores.shape[1], found.tokens.shape[2]
        scores, order = torch.cat([self.scores, scores], 1).sort(dim=1, descending=True, stable=True)
        scores, order = scores[:, :beam], order[:, :beam]
        log_probabilities = torch.cat([self.log_probabilities, found.log_probabilities], 1).gather(1, order)
        tokens = torch.cat([F.pad(self.tokens, (0, time - self.tokens.shape[2])), found.tokens], 1)
        return Finished(scores, log_probabilities, tokens.gather(1, order[:, :, None].expand(-1, -1, time)))

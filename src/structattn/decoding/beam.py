"""The unfinished hypotheses of all sentences, and their continuations."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from structattn.decoding.logits import at_least_single, log_normalizer, top
from structattn.decoding.stepper import Start, Stepper
from structattn.support.special_tokens import EOS_CLASS, PAD, class_of, id_of


@dataclass(frozen=True)
class Hypotheses:
    """Hypotheses of equal length, some for each sentence, best first; log p of -inf is an empty place.

    Args:
        log_probabilities: of the tokens after the first.
        tokens: what was read first, mostly <bos>, and what follows.
        parents: the place, one step earlier, of what they continue.
        ended: whether the last token is <eos>.
    """

    log_probabilities: Float[Tensor, "batch places"]
    tokens: Int[Tensor, "batch places time"]
    parents: Int[Tensor, "batch places"]
    ended: Bool[Tensor, "batch places"]

    @staticmethod
    def first(start: Start) -> "Hypotheses":
        """One for each sentence, of no token yet."""
        zeros = torch.zeros(len(start.tokens), 1, device=start.tokens.device)
        return Hypotheses(zeros, start.tokens[:, None, None], zeros.long(), zeros.bool())

    def select(self, sentences: Int[Tensor, " chosen"]) -> "Hypotheses":
        """Those of some sentences."""
        return Hypotheses(*(x[sentences] for x in (self.log_probabilities, self.tokens, self.parents, self.ended)))

    def best(self, allowed: Bool[Tensor, "batch places"], count: int) -> "Hypotheses":
        """The first ``count`` that are allowed, in as many places as some sentence fills, one at least."""
        values, order = self.log_probabilities.masked_fill(~allowed, -math.inf).sort(
            dim=1, descending=True, stable=True
        )
        filled = int((values > -math.inf).sum(1).max()) if len(values) else 0
        order = order[:, : max(1, min(count, filled))]
        tokens = _of_places(self.tokens, order)
        return Hypotheses(
            values[:, : order.shape[1]], tokens, self.parents.gather(1, order), self.ended.gather(1, order)
        )


def continuations(
    model: Stepper, beam: Hypotheses, state: Any, forced: Int[Tensor, " batch"] | None, count: int
) -> tuple[Hypotheses, Any]:
    """The ``count`` likeliest continuations of each sentence's hypotheses by one token, and the model's new state.

    Args:
        model: what predicts.
        beam: of W places for each sentence, none of them ended.
        state: row b * W + w is the state of place w of sentence b, before it has read its last token.
        forced: the id that must follow in each sentence, <pad> where any may; None: nowhere is one forced.
        count: of continuations; there are fewer where W * classes is less.
    """
    batch, places = beam.log_probabilities.shape
    logits, state = model.step(beam.tokens[..., -1].flatten(), state)
    logits = at_least_single(logits)
    before = beam.log_probabilities.flatten().to(logits.dtype) - log_normalizer(logits)
    following = (logits + before[:, None]).view(batch, places, -1)
    if forced is not None:
        following = only_forced(following, forced)
    classes = following.shape[2]
    values, indices = top(following.flatten(1), min(count, places * classes))
    parents, chosen = indices // classes, indices % classes
    tokens = torch.cat([_of_places(beam.tokens, parents), id_of(chosen[:, :, None])], dim=2)
    return Hypotheses(values, tokens, parents, (chosen == EOS_CLASS) & (values > -math.inf)), state


def only_forced(
    following: Float[Tensor, "batch places classes"], forced: Int[Tensor, " batch"]
) -> Float[Tensor, "batch places classes"]:
    """-inf for all but the forced token, where there is one."""
    classes = torch.arange(following.shape[2], device=following.device)
    possible = (forced[:, None] == PAD) | (classes == class_of(forced[:, None]))
    return following.masked_fill(~possible[:, None], -math.inf)


def state_of(beam: Hypotheses, sentences: Int[Tensor, " chosen"], state: Any, places: int) -> Any:
    """The states of some sentences' hypotheses, copied only where rows move.

    Args:
        beam: of all sentences.
        sentences: the numbers of those that go on, in rising order.
        state: of ``places`` hypotheses for each sentence, those that ``beam`` continues.
        places: see there.
    """
    rows = (sentences[:, None] * places + beam.parents[sentences]).flatten()
    before = beam.parents.shape[0] * places
    if len(rows) == before and torch.equal(rows, torch.arange(before, device=rows.device)):
        return state
    return state.select(rows)


def _of_places(tokens: Int[Tensor, "batch places time"], chosen: Int[Tensor, "batch chosen"]) -> Tensor:
    return tokens.gather(1, chosen[:, :, None].expand(-1, -1, tokens.shape[2]))

"""Which of the continuations go on, which are finished, and which sentences are done."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from structattn.decoding.beam import Hypotheses
from structattn.decoding.completed import Finished
from structattn.decoding.length_rules import score
from structattn.decoding.presets import BeamSearch


def pruned(found: Hypotheses, finished: Finished, search: BeamSearch, length: int) -> tuple[Hypotheses, Finished]:
    """The hypotheses that go on, and the finished ones.

    Args:
        found: the 2 * ``beam`` best continuations, so that ``beam`` of them have not ended, if there are as many. Those
            that ended count among the ``beam`` best only.
        finished: so far.
        search: how to prune.
        length: of the continuations.
    """
    scores = _scores(search, found.log_probabilities, length)
    among_best = torch.arange(scores.shape[1], device=scores.device).expand_as(scores) < search.beam
    if search.finished == "apart":
        going_on = ~found.ended
    else:
        finished_stay, among_best = _compete(finished.scores, scores, search.beam)
        finished, going_on = finished.only(finished_stay), among_best & ~found.ended
    ending = scores.masked_fill(~(found.ended & among_best), -math.inf)
    return found.best(going_on, search.beam), finished.with_more(found, ending)


def done(
    beam: Hypotheses,
    finished: Finished,
    search: BeamSearch,
    n_best: int,
    limits: Int[Tensor, " batch"],
    length: int,
) -> Bool[Tensor, " batch"]:
    """Whether each sentence is: at its limit, with nothing to go on, or stopped as the search says."""
    best_open = beam.log_probabilities[:, 0]
    at_the_end = (limits <= length) | (best_open == -math.inf)
    if search.stop == "count":
        return at_the_end | (finished.scores[:, -1] > -math.inf)
    if search.stop == "best":
        return at_the_end | (finished.scores[:, 0] >= _scores(search, best_open, length))
    wanted = n_best if search.ranking is None else search.beam
    within_reach = score(search.rule, best_open, limits)
    return at_the_end | (finished.scores[:, wanted - 1] >= within_reach)


def _compete(
    finished: Float[Tensor, "batch beam"], found: Float[Tensor, "batch found"], beam: int
) -> tuple[Bool[Tensor, "batch beam"], Bool[Tensor, "batch found"]]:
    """Which of either are among the ``beam`` best of both; those that finished earlier come first among equals."""
    together = torch.cat([finished, found], 1)
    order = together.sort(dim=1, descending=True, stable=True).indices[:, :beam]
    stay = torch.zeros_like(together, dtype=torch.bool).scatter(1, order, True)
    return stay[:, : finished.shape[1]], stay[:, finished.shape[1] :]


def _scores(search: BeamSearch, log_probabilities: Tensor, length: int) -> Tensor:
    lengths = torch.tensor(length, device=log_probabilities.device).expand_as(log_probabilities)
    return score(search.rule, log_probabilities, lengths)

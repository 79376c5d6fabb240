"""Beam search over many sentences at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from structattn.decoding.beam import Hypotheses, continuations, state_of
from structattn.decoding.completed import Finished
from structattn.decoding.hypothesis import Hypothesis
from structattn.decoding.limits import Limits, checked_limits, checked_prefixes
from structattn.decoding.presets import BeamSearch
from structattn.decoding.pruning import done, pruned
from structattn.decoding.ranking import ranked
from structattn.decoding.stepper import Start, Stepper


@dataclass(frozen=True)
class _Open:
    """The sentences that are not done, by their numbers; ``state`` is that of ``places`` parents of each one's beam."""

    numbers: Int[Tensor, " open"]
    beam: Hypotheses
    finished: Finished
    state: Any
    places: int

    def only(self, sentences: Int[Tensor, " chosen"]) -> "_Open":
        """Some of them, with the state of each place of the beam."""
        state = state_of(self.beam, sentences, self.state, self.places)
        beam = self.beam.select(sentences)
        return _Open(self.numbers[sentences], beam, self.finished.select(sentences), state, beam.parents.shape[1])


@torch.no_grad()
def beam_search(
    model: Stepper,
    start: Start,
    limits: Limits,
    search: BeamSearch | None = None,
    n_best: int = 1,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """The best texts of each sentence that a beam search finds.

    At each step every hypothesis is continued by every token; of all continuations of a sentence the best go on, the
    better hypothesis and then the lower id first among equals. Sentences do not influence each other, whatever batch
    they are in, up to the rounding of the model. Those that are done leave the batch.

    Cost: a step of the model for each token of the longest search, with at most ``beam`` rows for each open sentence,
    and O(beam * classes) beside it for each sentence; memory for the states and for that many numbers.

    Args:
        model: what predicts, in evaluation mode.
        start: the sentences, from ``translation`` or ``continuation``.
        limits: the most tokens of each text, <eos> and forced ones counted; one number is everyone's.
        search: the beam, the length rule, and what stops it; None: ``BeamSearch()``.
        n_best: how many hypotheses of each sentence to return, at most ``beam``.
        prefixes: what each text must begin with, without <bos>; its probability counts.

    Returns:
        For each sentence at most ``n_best`` hypotheses: finished ones by falling score, and where these are too few,
        those that the limit cut or that were open when the search stopped, by falling score. There can be fewer, or
        none, where the model gives everything else a probability of zero.

    Raises:
        ValueError: the model gives NaN, or limits, prefixes or ``n_best`` do not fit.
    """
    search = BeamSearch() if search is None else search
    if not 1 <= n_best <= search.beam:
        raise ValueError(f"n_best={n_best}; expected 1 to {search.beam}, the size of the beam")
    batch, device = len(start.tokens), start.tokens.device
    on_host = checked_limits(limits, batch)
    forced, limit = checked_prefixes(prefixes, on_host, device), on_host.to(device)
    results: list[list[Hypothesis]] = [[] for _ in range(batch)]
    numbers, none_yet = torch.arange(batch, device=device), Finished.none(batch, search.beam, device)
    rest, length = _Open(numbers, Hypotheses.first(start), none_yet, start.state, 1), 0
    while True:
        ends = done(rest.beam, rest.finished, search, n_best, limit[rest.numbers], length)
        over, open_ = ends.nonzero()[:, 0], (~ends).nonzero()[:, 0]
        found = ranked(rest.beam.select(over), rest.finished.select(over), search, n_best)
        for number, hypotheses in zip(rest.numbers[over].tolist(), found, strict=True):
            results[number] = hypotheses
        if len(open_) == 0:
            return results
        length += 1
        rest = _step(model, rest.only(open_), search, _column(forced, rest.numbers[open_], length - 1), length)


def _step(model: Stepper, rest: _Open, search: BeamSearch, forced: Tensor | None, length: int) -> _Open:
    """All hypotheses are continued by one token, and pruned."""
    found, state = continuations(model, rest.beam, rest.state, forced, 2 * search.beam)
    beam, finished = pruned(found, rest.finished, search, length)
    return _Open(rest.numbers, beam, finished, state, rest.places)


def _column(forced: Int[Tensor, "batch time"], numbers: Tensor, position: int) -> Int[Tensor, " open"] | None:
    """The forced token of each sentence, None where no text of the batch is forced as far as this."""
    return forced[numbers, position] if position < forced.shape[1] else None

"""Beam search."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.decoding.batches import MaxLengths, check_max_lengths, check_prefixes
from structattn.decoding.beam_presets import BeamSearch, LengthPenalty, length_penalized
from structattn.decoding.continuations import forced_classes, top_continuations
from structattn.decoding.stepper import DecoderState, DecodingStart, Hypothesis, Stepper
from structattn.operators.common.states import Selectable
from structattn.support.shapes import Bool, Float, Int
from structattn.support.special_tokens import CLASS_OFFSET, EOS_CLASS, PAD

Forbid = Callable[[Int[Tensor, "open beam time"], Int[Tensor, " open"], int], Bool[Tensor, "open beam classes"]]
"""Returns which classes may not follow, given the tokens of ``Hypotheses``, the indices of their sentences in the
batch, and the number of classes."""


@dataclass(frozen=True)
class Hypotheses(Selectable):
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
        zeros = torch.zeros(len(start.tokens), 1, dtype=torch.float32, device=start.tokens.device)
        return Hypotheses(zeros, start.tokens[:, None, None], zeros.long(), zeros.bool())

    def best(self, allowed: Bool[Tensor, "batch beam"], k: int) -> "Hypotheses":
        """Return the k best allowed hypotheses; fewer where no sentence has k, but at least one slot."""
        log_probs, order = self.log_probs.masked_fill(~allowed, -math.inf).sort(dim=1, descending=True, stable=True)
        num_filled = int((log_probs > -math.inf).sum(1).max()) if len(log_probs) else 0
        order = order[:, : max(1, min(k, num_filled))]
        tokens = self.tokens.take_along_dim(order[:, :, None], 1)
        parents, finished = self.parents.gather(1, order), self.finished.gather(1, order)
        return Hypotheses(log_probs[:, : order.shape[1]], tokens, parents, finished)


@dataclass(frozen=True)
class FinishedHypotheses(Selectable):
    """Up to ``beam_size`` finished hypotheses of each sentence, best first; a score of -inf marks an empty slot.

    Args:
        scores: log-probabilities under the length penalty of the search.
        tokens: as in ``Hypotheses``, with <pad> after <eos>.
    """

    scores: Float[Tensor, "batch beam"]
    log_probs: Float[Tensor, "batch beam"]
    tokens: Int[Tensor, "batch beam time"]

    @staticmethod
    def empty(batch_size: int, beam_size: int, device: torch.device) -> "FinishedHypotheses":
        """Return empty slots."""
        minus_inf = torch.full((batch_size, beam_size), -math.inf, dtype=torch.float32, device=device)
        tokens = torch.zeros(batch_size, beam_size, 0, dtype=torch.int64, device=device)
        return FinishedHypotheses(minus_inf, minus_inf, tokens)

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


@dataclass(frozen=True)
class Sentences(Selectable):
    """What the search for each sentence is given.

    Args:
        forced: the tokens of their prefixes, then <pad>.
    """

    indices: Int[Tensor, " open"]
    limits: Int[Tensor, " open"]
    forced: Int[Tensor, "open prefix"]


@dataclass(frozen=True)
class OpenSearch:
    """The search for the sentences where it continues.

    Args:
        state: the model's state; row b * num_parents + w is that of hypothesis w of sentence b in the previous beam.
        num_parents: the number of hypotheses of each sentence in the previous beam.
        length: the number of tokens of the hypotheses.
    """

    model: Stepper
    sentences: Sentences
    beam: Hypotheses
    finished: FinishedHypotheses
    state: DecoderState
    num_parents: int
    length: int

    @staticmethod
    def begin(
        model: Stepper,
        start: DecodingStart,
        max_lengths: MaxLengths,
        beam_size: int,
        prefixes: Sequence[Sequence[int]] | None,
    ) -> "OpenSearch":
        """Return the search for a batch before its first step; see ``beam_search``."""
        batch_size, device = len(start.tokens), start.tokens.device
        limits = check_max_lengths(max_lengths, batch_size)
        forced = check_prefixes(prefixes, limits, device)
        sentences = Sentences(torch.arange(batch_size, device=device), limits.to(device), forced)
        finished = FinishedHypotheses.empty(batch_size, beam_size, device)
        return OpenSearch(model, sentences, Hypotheses.initial(start), finished, start.state, 1, 0)

    def select(self, rows: Int[Tensor, " selected"]) -> "OpenSearch":
        """Return the search for some of the sentences, in their order, with a state for each hypothesis of their beams.

        The state is not copied where every hypothesis extends the one in its own row.
        """
        state, num_states = self.state, len(self.beam.parents) * self.num_parents
        state_rows = (rows[:, None] * self.num_parents + self.beam.parents[rows]).flatten()
        if not torch.equal(state_rows, torch.arange(num_states, device=rows.device)):
            state = state.select(state_rows)
        selected = replace(self, state=state, num_parents=self.beam.parents.shape[1])
        if len(rows) == len(self.sentences.indices):
            return selected
        sentences, beam = self.sentences.select(rows), self.beam.select(rows)
        return replace(selected, sentences=sentences, beam=beam, finished=self.finished.select(rows))


@torch.no_grad()
def beam_search(
    model: Stepper,
    start: DecodingStart,
    max_lengths: MaxLengths,
    search: BeamSearch | None = None,
    n_best: int = 1,
    prefixes: Sequence[Sequence[int]] | None = None,
    on_step: Callable[[Hypotheses, Hypotheses], object] | None = None,
    forbid: Forbid | None = None,
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence.

    At each step every hypothesis is extended by every token, and the best extensions of each sentence are kept; among
    equal scores, the extension of the better hypothesis, and then the lower id, comes first. The results for a sentence
    do not depend on the others in the batch, up to the rounding of the model. Sentences whose search has ended leave
    the batch.

    Cost: one step of the model for each token of the longest search, with at most ``beam_size`` rows for each open
    sentence, and O(beam_size * classes) more for each sentence; memory for the states and as many scores.

    Args:
        model: in evaluation mode.
        start: the sentences, from ``start_translation`` or ``start_continuation``.
        max_lengths: the maximum number of tokens of each text, <eos> and prefix included; one number for all, or one
            for each sentence.
        search: beam size, length penalty, pruning and stopping rules; None: ``BeamSearch()``.
        n_best: the number of hypotheses to return for each sentence, at most ``beam_size``.
        prefixes: ids, without <bos>, that each text must begin with; their log-probability counts.
        on_step: called after each step with the unfinished hypotheses of the sentences whose search goes on, and with
            those that finished in this step among the ``beam_size`` best; parents are indices into the former at the
            step before.
        forbid: classes that no hypothesis may take; the log-probabilities of the others stay those of the model.

    Returns:
        For each sentence at most ``n_best`` hypotheses: finished ones by descending score, followed, where these are
        too few, by unfinished ones by descending score, which were truncated at the maximum length or still active when
        the search stopped. There are fewer, or none, if all other continuations have probability 0.

    Raises:
        ValueError: the model returns NaN or +inf, or ``max_lengths``, ``prefixes`` or ``n_best`` is invalid.
    """
    search = BeamSearch() if search is None else search
    if not 1 <= n_best <= search.beam_size:
        raise ValueError(f"n_best={n_best}; expected 1 to beam_size={search.beam_size}")
    results: list[list[Hypothesis]] = [[] for _ in start.tokens]
    current: OpenSearch | None = OpenSearch.begin(model, start, max_lengths, search.beam_size, prefixes)
    while current is not None:
        current, ended = _finish(current, search, n_best)
        for index, hypotheses in ended:
            results[index] = hypotheses
        if current is not None:
            current, finished = _step(current, search, forbid)
            if on_step is not None:
                on_step(current.beam, finished)
    return results


def _finish(
    current: OpenSearch, search: BeamSearch, n_best: int
) -> tuple[OpenSearch | None, list[tuple[int, list[Hypothesis]]]]:
    """Return the search for the sentences where it goes on, if any, and the n best hypotheses of the others."""
    done = _is_done(current, search, n_best)
    ended, going_on = done.nonzero()[:, 0], (~done).nonzero()[:, 0]
    rest = current.select(going_on) if len(going_on) > 0 else None
    if len(ended) == 0:
        return rest, []
    ranked = rank(current.beam.select(ended), current.finished.select(ended), search.ranking_penalty, n_best)
    return rest, list(zip(current.sentences.indices[ended].tolist(), ranked, strict=True))


def _step(current: OpenSearch, search: BeamSearch, forbid: Forbid | None) -> tuple[OpenSearch, Hypotheses]:
    """Extend all hypotheses by one token, and prune; return also the extensions that finished.

    At most ``beam_size`` of the 2 * ``beam_size`` best extensions end in <eos>, so ``beam_size`` unfinished ones remain
    if there are as many. Finished ones count only if they are among the ``beam_size`` best.
    """
    extensions, state = _extend(current, search, forbid)
    length = current.length + 1
    finished, scores = current.finished, length_penalized(search.length_penalty, extensions.log_probs, length)
    among_best = torch.arange(scores.shape[1], device=scores.device).expand_as(scores) < search.beam_size
    open_ = ~extensions.finished
    if search.finishing == "in_beam":
        finished, among_best = _compete(finished, scores, search.beam_size)
        open_ = among_best & open_
    dropped = ~(extensions.finished & among_best)
    finished = finished.merge(extensions, scores.masked_fill(dropped, -math.inf))
    ended = replace(extensions, log_probs=extensions.log_probs.masked_fill(dropped, -math.inf))
    beam = extensions.best(open_, search.beam_size)
    return replace(current, beam=beam, finished=finished, state=state, length=length), ended


def _extend(current: OpenSearch, search: BeamSearch, forbid: Forbid | None) -> tuple[Hypotheses, DecoderState]:
    """Return the 2 * ``beam_size`` best one-token extensions of each sentence's hypotheses, and the model's new state.

    There are fewer where hypotheses times classes are less. Each hypothesis has a row of the state.
    """
    beam, sentences = current.beam, current.sentences
    logits, state = current.model.step(beam.tokens[..., -1].flatten(), current.state)
    logits = logits.view(*beam.log_probs.shape, -1)
    num_classes = logits.shape[2]
    k = min(2 * search.beam_size, beam.log_probs.shape[1] * num_classes)
    required = None
    if current.length < sentences.forced.shape[1]:
        required = forced_classes(sentences.forced[:, current.length], num_classes)
    if search.force_eos:
        required = _with_eos_at_the_limit(current, required)
    forbidden = None if forbid is None else forbid(beam.tokens, sentences.indices, num_classes)
    if current.length < search.min_length:
        forbidden = _with_eos_before_the_limit(current, num_classes, forbidden)
    values, indices = top_continuations(logits, beam.log_probs, k, required, forbidden)
    parents, classes = indices // num_classes, indices % num_classes
    previous = beam.tokens.take_along_dim(parents[:, :, None], 1)
    tokens = torch.cat([previous, classes[:, :, None] + CLASS_OFFSET], dim=2)
    return Hypotheses(values, tokens, parents, (classes == EOS_CLASS) & (values > -math.inf)), state


def _with_eos_at_the_limit(current: OpenSearch, required: Int[Tensor, " open"] | None) -> Int[Tensor, " open"] | None:
    """Return the required classes, with <eos> where a sentence's last token is open; None: any may follow in all."""
    is_last = current.sentences.limits == current.length + 1
    if required is None:
        return torch.where(is_last, EOS_CLASS, -1) if bool(is_last.any()) else None
    return required.masked_fill(is_last & (required < 0), EOS_CLASS)


def _with_eos_before_the_limit(
    current: OpenSearch, num_classes: int, forbidden: Bool[Tensor, "open beam classes"] | None
) -> Bool[Tensor, "open beam classes"]:
    """Return the forbidden classes, and <eos> but for the last token of a sentence."""
    tokens, limits = current.beam.tokens, current.sentences.limits
    is_eos = torch.arange(num_classes, device=tokens.device) == EOS_CLASS
    too_short = (limits > current.length + 1)[:, None, None] & is_eos.expand(*tokens.shape[:2], -1)
    return too_short if forbidden is None else forbidden | too_short


def _compete(
    finished: FinishedHypotheses, scores: Float[Tensor, "batch candidates"], beam_size: int
) -> tuple[FinishedHypotheses, Bool[Tensor, "batch candidates"]]:
    """Return which finished hypotheses and which candidates are among the ``beam_size`` best of both together.

    Among equal scores, those that finished earlier come first.
    """
    together = torch.cat([finished.scores, scores], 1)
    order = together.sort(dim=1, descending=True, stable=True).indices[:, :beam_size]
    stay = torch.zeros_like(together, dtype=torch.bool).scatter(1, order, True)
    num_finished = finished.scores.shape[1]
    kept_scores = finished.scores.masked_fill(~stay[:, :num_finished], -math.inf)
    return FinishedHypotheses(kept_scores, finished.log_probs, finished.tokens), stay[:, num_finished:]


def _is_done(current: OpenSearch, search: BeamSearch, n_best: int) -> Bool[Tensor, " open"]:
    """Return whether each sentence's search ends: at its maximum length, without hypotheses, or by stopping rule."""
    best_open, scores = current.beam.log_probs[:, 0], current.finished.scores
    limits, length = current.sentences.limits, current.length
    ended = (limits <= length) | (best_open == -math.inf)
    if search.stopping == "all_finished":
        return ended | (scores[:, -1] > -math.inf)
    if search.stopping == "best_finished":
        return ended | (scores[:, 0] >= length_penalized(search.length_penalty, best_open, length))
    num_wanted = n_best if search.final_penalty is None else search.beam_size
    return ended | (scores[:, num_wanted - 1] >= length_penalized(search.length_penalty, best_open, limits))

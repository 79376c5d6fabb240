"""Scores of language models: -log p of sequences is summed in float64, so that the size of batches does not matter."""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from structattn.metrics.statistics import lower_bound
from structattn.models.mode import evaluating
from structattn.settings.training import StreamBatches
from structattn.support.errors import DataError
from structattn.support.progress import progress
from structattn.support.shapes import Float64
from structattn.support.special_tokens import BOS
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.losses import cross_entropy_sum, model_inputs, token_losses
from structattn.tasks.scores import LengthScore, SplitScores, TextScores
from structattn.tasks.task import Scores, num_predicted, perplexity
from structattn.text.batching.pairs import PairBatch
from structattn.text.batching.sequences import (
    Batch,
    Indices,
    make_batch,
    make_stream_batch,
    stream_batches,
    token_batches,
)
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.folders.sequences import Sequences
from structattn.text.folders.text_statistics import LARGE_UNKNOWN_SHARE, text_statistics, unknown_share

_LOGGER = logging.getLogger("structattn")

BATCH_TOKENS = 8192  # of a batch that is scored
NegativeLogLikelihoods = Float64[np.ndarray, " examples"]


def max_batch_tokens(vocabulary_size: int) -> int:
    """Return the number of tokens whose logits take 64 MiB in float32: batches stay small for large vocabularies."""
    return max(1, (1 << 24) // vocabulary_size)


@torch.no_grad()
def _batch_token_losses(model: torch.nn.Module, batch: Batch) -> Float64[Tensor, "batch time"]:
    """Return -log p of every token of a batch on the CPU, in float32 or better; 0 at padding."""
    inputs, lengths, classes = model_inputs(model, batch)
    return token_losses(model(inputs, lengths=lengths), classes).double().cpu()


def line_token_losses(
    model: torch.nn.Module, lines: Sequence[Sequence[int]], batch_tokens: int, what: str, start: int = BOS
) -> list[Float64[np.ndarray, " tokens"]]:
    """Return -log p of each token of each line, and of the ``<eos>`` after it, given the tokens before it.

    Args:
        model: ``model(tokens, lengths) -> logits``; it is put into evaluation mode for the call.
        lines: ids without ``<bos>`` and ``<eos>``.
        batch_tokens: the maximal padded size of a batch; affects speed and memory only.
        what: a name for the progress bar.
        start: the id before the first token.
    """
    rows = [np.asarray(line, dtype=np.int64) for line in lines]
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    of_lines: list[Float64[np.ndarray, " tokens"]] = [np.empty(0)] * len(rows)
    plan = token_batches(lengths, batch_tokens, seed=0, epoch=None)
    with evaluating(model), progress(f"Scoring {what}", len(rows), "lines") as advance:
        for indices in plan:
            losses = _batch_token_losses(model, make_batch(rows, indices, start)).numpy()
            for index, of_line in zip(indices.tolist(), losses, strict=True):
                of_lines[index] = of_line[: lengths[index] + 1]
            advance(len(indices))
    return of_lines


def _score_batches(
    model: torch.nn.Module, plan: Sequence[Indices], make: Callable[[Indices], Batch], what: str
) -> NegativeLogLikelihoods:
    losses = np.full(sum(len(indices) for indices in plan), np.nan)
    with evaluating(model), progress(f"Scoring {what}", len(plan), "batches") as advance:
        for indices in plan:
            losses[indices] = _batch_token_losses(model, make(indices)).sum(dim=1).numpy()
            advance()
    return losses


def sequence_negative_log_likelihoods(
    model: torch.nn.Module, sequences: Sequences, batch_tokens: int, what: str
) -> NegativeLogLikelihoods:
    """Return -log p(w <eos>) of every sequence w, in file order."""
    plan = token_batches(sequences.lengths, batch_tokens, seed=0, epoch=None)
    return _score_batches(model, plan, partial(make_batch, sequences), what)


def window_negative_log_likelihoods(
    model: torch.nn.Module, sequences: Sequences, length: int, batch_tokens: int, what: str
) -> NegativeLogLikelihoods:
    """Return -log p of every window of ``length`` tokens of a stream, each without the context before it.

    Every token is predicted exactly once, including the ``<eos>`` at the end of each line.
    """
    plan = stream_batches(sequences.num_targets, length, max(1, batch_tokens // length), seed=0, epoch=None)
    return _score_batches(model, plan, partial(make_stream_batch, sequences, length=length), what)


def language_modeling_scores(run: LoadedRun, split: str, batch_tokens: int) -> SplitScores:
    """Score a run on a split: its sequences or, of a stream, the windows that it was trained on."""
    scores = make_split_scores(run.prepared, split, split_negative_log_likelihoods(run, split, batch_tokens))
    return replace(scores, text=make_text_scores(run.prepared, split, scores.cross_entropy))


def split_negative_log_likelihoods(
    run: LoadedRun, split: str, batch_tokens: int = BATCH_TOKENS
) -> NegativeLogLikelihoods:
    """Return -log p of every sequence of a split; of every window, if the data are a stream."""
    sequences = run.prepared.split(split)
    if not len(sequences):
        raise DataError(run.prepared.path / split, "has no sequences to score")
    batches = run.settings.training.batches
    if isinstance(batches, StreamBatches):
        return window_negative_log_likelihoods(run.accelerated, sequences, batches.sequence_length, batch_tokens, split)
    return sequence_negative_log_likelihoods(run.accelerated, sequences, batch_tokens, split)


def _loss_sum(model: torch.nn.Module, batch: Batch) -> Tensor:
    inputs, lengths, classes = model_inputs(model, batch)
    return cross_entropy_sum(model(inputs, lengths=lengths), classes)


def score_batches(
    model: torch.nn.Module,
    batches: Iterable[Batch | PairBatch],
    after_batch: Callable[[], None],
    loss_sum: Callable[[torch.nn.Module, Any], Tensor] = _loss_sum,
) -> Scores:
    """Score a model on batches in evaluation mode; ``after_batch`` may raise to abort.

    The losses of the batches, by default sums in float32, are added in float64.
    """
    num_sequences, num_tokens, total = 0, 0, 0.0
    with evaluating(model):
        for batch in batches:
            with torch.no_grad():
                total += loss_sum(model, batch).item()
            num_sequences += len(batch.lengths)
            num_tokens += num_predicted(batch)
            after_batch()
    cross_entropy = total / num_tokens if num_tokens else 0.0  # an empty sum
    return Scores(num_sequences, num_tokens, cross_entropy, perplexity(cross_entropy))


def _length_score(length: int, negative_log_likelihoods: NegativeLogLikelihoods, sequences: Sequences) -> LengthScore:
    """Return the scores of the sequences of a length.

    The bound is conditioned on the length, which the model has to predict: a perfect model of strings with N equally
    probable lengths stays log N / (length + 1) above it (DuSell & Chiang 2024, section 6).
    """
    chosen = sequences.lengths == length
    count = int(chosen.sum())
    cross_entropy = float(negative_log_likelihoods[chosen].sum() / (count * (length + 1)))
    if sequences.log_probabilities is None:
        return LengthScore(length, count, cross_entropy)
    bound = lower_bound(sequences.log_probabilities[chosen], sequences.lengths[chosen], num_lengths=1)
    difference = cross_entropy - bound
    return LengthScore(length, count, cross_entropy, bound, difference, lower_bound_num_lengths=1)


def longer_than(scores: SplitScores, length: int) -> SplitScores:
    """Return the scores of a split on its sequences of more tokens, with the bound given their lengths.

    That is the mean of what papers report for each length; the bound of the whole split has log L nats per string more.

    Raises:
        ValueError: the split has no such sequences.
    """
    longer = [each for each in scores.by_length if each.length > length]
    if not longer:
        raise ValueError(f"{scores.split} has no sequence of more than {length} tokens")
    num_tokens = [each.num_sequences * (each.length + 1) for each in longer]
    bounds = [each.lower_bound for each in longer if each.lower_bound is not None]
    bound = fmean(bounds, num_tokens) if len(bounds) == len(longer) else None
    cross_entropy = fmean([each.cross_entropy for each in longer], num_tokens)
    return SplitScores(
        split=f"{scores.split}, longer than {length}",
        num_sequences=sum(each.num_sequences for each in longer),
        num_tokens=sum(num_tokens),
        cross_entropy=cross_entropy,
        perplexity=perplexity(cross_entropy),
        lower_bound=bound,
        cross_entropy_difference=None if bound is None else cross_entropy - bound,
        lower_bound_num_lengths=None if bound is None else 1,
        by_length=tuple(longer),
    )


def split_lower_bound(prepared: PreparedFolder, split: str) -> float | None:
    """Return the lower bound of the cross-entropy on a split of strings, in nats per token; None if it is unknown.

    LB = [Σ -log p(w | |w|) + |D| log N] / Σ (|w| + 1) for N valid lengths (DuSell & Chiang 2024, section 6).
    """
    sequences, number = prepared.split(split), _number_of_lengths(prepared, split)
    if sequences.log_probabilities is None or number is None or not len(sequences):
        return None
    return lower_bound(sequences.log_probabilities, sequences.lengths, number)


def _number_of_lengths(prepared: PreparedFolder, split: str) -> int | None:
    """Return the number of lengths that the strings of a split were drawn from; None if it is unknown."""
    return prepared.header.count("number_of_lengths", split) or None


def make_split_scores(
    prepared: PreparedFolder, split: str, negative_log_likelihoods: NegativeLogLikelihoods
) -> SplitScores:
    """Return the scores of a split, given -log p of its sequences, or of the windows of a stream."""
    sequences = prepared.split(split)
    num_tokens = sequences.num_targets
    cross_entropy = float(negative_log_likelihoods.sum() / num_tokens) if num_tokens else 0.0  # an empty sum
    bound = split_lower_bound(prepared, split)
    lengths = [] if prepared.kind == "stream" else np.unique(sequences.lengths).tolist()
    return SplitScores(
        split=split,
        num_sequences=len(sequences),
        num_tokens=num_tokens,
        cross_entropy=cross_entropy,
        perplexity=perplexity(cross_entropy),
        lower_bound=bound,
        cross_entropy_difference=None if bound is None else cross_entropy - bound,
        lower_bound_num_lengths=None if bound is None else _number_of_lengths(prepared, split),
        by_length=tuple(_length_score(length, negative_log_likelihoods, sequences) for length in lengths),
    )


def make_text_scores(prepared: PreparedFolder, split: str, cross_entropy: float | None) -> TextScores | None:
    """Return the scores of a split of text.

    Args:
        prepared: the prepared folder.
        split: the name of the split.
        cross_entropy: in nats per token, ``<eos>`` included; None if a model gives no probability of the text.

    Returns:
        The scores; None for data other than text. Scores are None if the folder does not state the size of its text.
    """
    share = unknown_share(prepared, split)
    if share is None or prepared.kind not in ("sentences", "stream"):
        return None
    if share > LARGE_UNKNOWN_SHARE:
        _LOGGER.warning(
            "%.1f %% of the tokens of %s are <unk>, so scores say little about its text", 100 * share, split
        )
    size = text_statistics(prepared, split)
    if size is None or cross_entropy is None:
        return TextScores(share)
    bits = cross_entropy / math.log(2)
    subword = prepared.header.tokenizer["level"] != "word"
    return TextScores(
        share,
        perplexity(cross_entropy * size.targets_per(size.words)) if subword else None,
        bits * size.targets_per(size.characters),
        bits * size.targets_per(size.bytes),
    )

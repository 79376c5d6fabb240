"""Scores of a transduction model: cross-entropy and accuracy for each input length."""

from contextlib import AbstractContextManager
from statistics import fmean
from typing import Any

import numpy as np

from structattn.models.mode import evaluating, evaluating_with_dropout
from structattn.support.progress import progress
from structattn.support.seeds import derived_seed
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.scores import LengthScore, SplitScores
from structattn.tasks.task import perplexity
from structattn.tasks.transductions.batches import Form, form_of, stored_pairs, transduction_data
from structattn.tasks.transductions.scores import fraction_correct, length_counts, num_correct_greedy


def transduction_scores(run: LoadedRun, split: str, batch_tokens: int) -> SplitScores:
    """Score a run of a transduction task on a split, with active dropout if its evaluation settings say so.

    Args:
        run: the trained run.
        split: the name of the split.
        batch_tokens: the approximate number of tokens of a batch.
    """
    form = form_of(run.settings)
    pairs = list(stored_pairs(run.prepared, split))
    with _mode(run, split), progress(f"Scoring {split}", len(pairs), "lengths") as advance:
        results = []
        for _, x, y in pairs:
            results.append(_length_score(run, x, y, form, batch_tokens))
            advance()
    by_length = [score for score, _ in results]
    num_tokens = sum(count for _, count in results)
    cross_entropy = sum(score.cross_entropy * count for score, count in results) / num_tokens
    greedy = [score.accuracy_greedy for score in by_length if score.accuracy_greedy is not None]
    return SplitScores(
        split=split,
        num_sequences=sum(score.num_sequences for score in by_length),
        num_tokens=num_tokens,
        cross_entropy=cross_entropy,
        perplexity=perplexity(cross_entropy),
        lower_bound=None,
        cross_entropy_difference=None,
        by_length=tuple(by_length),
        accuracy=fmean(score.accuracy for score in by_length if score.accuracy is not None),
        accuracy_greedy=fmean(greedy) if greedy else None,
    )


def _mode(run: LoadedRun, split: str) -> AbstractContextManager[Any]:
    if not run.settings.evaluation.dropout:
        return evaluating(run.model)
    return evaluating_with_dropout(run.model, derived_seed(run.settings.seed, "dropout in evaluation", split))


def _length_score(
    run: LoadedRun, x: np.ndarray, y: np.ndarray, form: Form, batch_tokens: int
) -> tuple[LengthScore, int]:
    """Return the score of the pairs of one length, and their number of output symbols."""
    data = transduction_data(run.prepared, run.settings.seed)
    rows = max(1, batch_tokens // (2 + x.shape[1] + y.shape[1]))
    pieces = [(x[i : i + rows], y[i : i + rows]) for i in range(0, len(x), rows)]
    counts = [length_counts(run.accelerated, data.task, data.vocabulary, *piece, form) for piece in pieces]
    num_scored = sum(each.num_scored for each in counts)
    greedy = None
    if form == "autoregressive":
        num_correct = sum(num_correct_greedy(run.accelerated, data.task, data.vocabulary, *piece) for piece in pieces)
        greedy = fraction_correct(num_correct, num_scored)
    score = LengthScore(
        length=x.shape[1],
        num_sequences=len(x),
        cross_entropy=sum(each.loss_sum for each in counts) / y.size,
        lower_bound=None,
        cross_entropy_difference=None,
        accuracy=fraction_correct(sum(each.num_correct for each in counts), num_scored),
        accuracy_greedy=greedy,
    )
    return score, y.size

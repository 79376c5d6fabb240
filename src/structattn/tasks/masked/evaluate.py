"""Scores of a masked language model: cross-entropy of masked tokens, and pseudo-perplexity."""

import numpy as np

from structattn.models.mode import evaluating
from structattn.support.progress import progress
from structattn.tasks.language_modeling.evaluate import make_text_scores
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.masked.batches import MaskedExamples, masked_examples
from structattn.tasks.masked.scores import pseudo_log_likelihoods, score_masked
from structattn.tasks.scores import PseudoPerplexity, SplitScores
from structattn.tasks.task import perplexity
from structattn.text.batching.sequences import Indices


def masked_scores(run: LoadedRun, split: str, batch_tokens: int) -> SplitScores:
    """Score a run on a split with the masks of the evaluation settings' ``mask_seed``, and by pseudo-perplexity.

    Args:
        run: the trained run.
        split: the name of the split.
        batch_tokens: the maximal size of a batch of pseudo-perplexity.
    """
    how = run.settings.evaluation
    examples = masked_examples(run.prepared, split, run.settings, how.mask_seed)
    plan = examples.examples.scoring_order()
    with progress(f"Scoring {split}", len(plan), "batches") as advance:
        scores = score_masked(run.accelerated, (examples.batch(indices) for indices in plan), advance)
    chosen = evenly_spaced(examples.examples.num_examples, how.pseudo_perplexity_examples)
    return SplitScores(
        split=split,
        num_sequences=scores.num_sequences,
        num_tokens=scores.num_tokens,
        cross_entropy=scores.cross_entropy,
        perplexity=scores.perplexity,
        lower_bound=None,
        cross_entropy_difference=None,
        by_length=(),
        mask_seed=how.mask_seed,
        pseudo=pseudo_scores(run, examples, chosen, batch_tokens) if len(chosen) else None,
        text=make_text_scores(run.prepared, split, None),
    )


def evenly_spaced(number: int, count: int | None) -> Indices:
    """Return ``count`` indices below ``number`` at equal distances, the first one 0; all indices for None."""
    chosen = number if count is None else min(count, number)
    return np.arange(chosen) * number // max(chosen, 1)


def pseudo_scores(run: LoadedRun, examples: MaskedExamples, chosen: Indices, batch_tokens: int) -> PseudoPerplexity:
    """Return the pseudo-perplexity of examples (Salazar et al. 2020, section 2.3), with sums in float64."""
    total, num_tokens, mask = 0.0, 0, examples.corruption.mask
    with evaluating(run.model), progress("Masking each token", len(chosen), "texts") as advance:
        for index in chosen:
            (tokens,) = examples.tokens(np.array([index]))
            rows = max(1, batch_tokens // (len(tokens) + examples.bos))
            found = pseudo_log_likelihoods(run.accelerated, tokens, mask, examples.bos, rows)
            total, num_tokens = total + float(found.sum()), num_tokens + len(found)
            advance()
    cross_entropy = -total / num_tokens if num_tokens else 0.0
    return PseudoPerplexity(len(chosen), num_tokens, cross_entropy, perplexity(cross_entropy))

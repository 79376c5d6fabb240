"""Cross-entropy of masked tokens, and pseudo-log-likelihoods of texts."""

import numpy as np
import torch
from torch import Tensor

from structattn.models.mode import evaluating
from structattn.settings.training import LabelSmoothing
from structattn.support.devices import device_of
from structattn.support.errors import DataError
from structattn.support.progress import progress
from structattn.support.shapes import Float, Float64
from structattn.support.special_tokens import BOS, EOS, PADDING_CLASS, class_of
from structattn.tasks.language_modeling.evaluate import make_text_scores, score_batches
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.losses import cross_entropy_sum, model_inputs, to_float32
from structattn.tasks.masked.batches import MaskedExamples, Tokens, masked_examples
from structattn.tasks.scores import PseudoPerplexity, SplitScores
from structattn.tasks.task import perplexity
from structattn.text.batching.sequences import Batch, Indices


def masked_cross_entropy_sum(
    model: torch.nn.Module, batch: Batch, label_smoothing: LabelSmoothing | None = None
) -> Float[Tensor, ""]:
    """Return the sum of -log p of the predicted tokens of a batch; logits of other tokens are not computed."""
    inputs, lengths, classes = model_inputs(model, batch)
    predicted = classes != PADDING_CLASS
    logits = model(inputs, lengths=lengths, predicted=predicted)
    return cross_entropy_sum(logits[None], classes[predicted][None], label_smoothing)


@torch.no_grad()
def pseudo_log_likelihoods(
    model: torch.nn.Module, tokens: Tokens, mask: int, bos: bool, rows: int
) -> Float64[np.ndarray, " predicted"]:
    """Return log p(w_t | all other tokens) of each token but ``<eos>``; their sum is that of Salazar et al. (2020).

    Args:
        model: ``model(tokens, predicted=...) -> logits`` (N, classes) of the N predicted positions, in evaluation mode.
        tokens: ids of one text, without ``<bos>``.
        mask: the id of the mask, which replaces each token in turn.
        bos: whether the inputs of the model begin with ``<bos>``.
        rows: the number of tokens that are masked in one pass, each in a copy of the text.

    Cost: as many forward passes of the text as it has tokens.
    """
    places = np.flatnonzero(tokens != EOS)
    parts = [places[start : start + rows] for start in range(0, len(places), rows)]
    return np.concatenate([np.empty(0), *(_log_likelihoods(model, tokens, part, mask, bos) for part in parts)])


def _log_likelihoods(
    model: torch.nn.Module, tokens: Tokens, places: np.ndarray, mask: int, bos: bool
) -> Float64[np.ndarray, " places"]:
    device = device_of(model)
    inputs = torch.tensor([BOS] * bos + tokens.tolist()).repeat(len(places), 1)
    columns = torch.from_numpy(places) + bos
    predicted = torch.arange(inputs.shape[1]) == columns[:, None]
    logits = model(inputs.masked_fill(predicted, mask).to(device), predicted=predicted.to(device))
    classes = torch.from_numpy(class_of(tokens[places])).to(device)
    log_probs = to_float32(logits).log_softmax(-1).gather(1, classes[:, None])
    return np.asarray(log_probs[:, 0].double().cpu().numpy(), dtype=np.float64)


def masked_scores(run: LoadedRun, split: str, batch_tokens: int) -> SplitScores:
    """Score a run on a split with the masks of the evaluation settings' ``mask_seed``, and by pseudo-perplexity."""
    how = run.settings.evaluation
    examples = masked_examples(run.prepared, split, run.settings, how.mask_seed)
    plan = examples.examples.scoring_order()
    with progress(f"Scoring {split}", len(plan), "batches") as advance:
        batches = (examples.batch(indices) for indices in plan)
        scores = score_batches(run.accelerated, batches, advance, masked_cross_entropy_sum)
    if not scores.num_tokens:
        raise DataError(run.prepared.path / split, f"evaluation.mask_seed={how.mask_seed} masks none of its tokens")
    chosen = evenly_spaced(examples.examples.num_examples, how.pseudo_perplexity_examples)
    return SplitScores(
        split=split,
        num_sequences=scores.num_sequences,
        num_tokens=scores.num_tokens,
        cross_entropy=scores.cross_entropy,
        perplexity=scores.perplexity,
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
            log_probs = pseudo_log_likelihoods(run.accelerated, tokens, mask, examples.bos, rows)
            total, num_tokens = total + float(log_probs.sum()), num_tokens + len(log_probs)
            advance()
    cross_entropy = -total / num_tokens if num_tokens else 0.0
    return PseudoPerplexity(len(chosen), num_tokens, cross_entropy, perplexity(cross_entropy))

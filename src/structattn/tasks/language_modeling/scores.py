"""Cross-entropy of a model on a split, and the lower bound of a formal language."""

from collections.abc import Callable, Iterable

import torch

from structattn.metrics.statistics import lower_bound
from structattn.models.mode import evaluating
from structattn.support.errors import DataError
from structattn.tasks.losses import cross_entropy_sum, model_inputs
from structattn.tasks.task import Scores, perplexity
from structattn.text.batching.sequences import Batch
from structattn.text.folders.prepared import PreparedFolder


def score_batches(model: torch.nn.Module, batches: Iterable[Batch], after_batch: Callable[[], None]) -> Scores:
    """Score a model on batches in evaluation mode; sums over batches are kept in float64.

    Args:
        model: ``model(tokens, lengths) -> logits`` (B, T, classes); class c stands for token id c + 2.
        batches: what to score.
        after_batch: called after each batch; may raise to abort.
    """
    num_sequences, num_tokens, loss_sum = 0, 0, 0.0
    with evaluating(model):
        for batch in batches:
            with torch.no_grad():
                inputs, lengths, classes = model_inputs(model, batch)
                loss_sum += cross_entropy_sum(model(inputs, lengths=lengths), classes).item()
            num_sequences += len(batch.lengths)
            num_tokens += int(batch.lengths.sum())
            after_batch()
    cross_entropy = loss_sum / num_tokens if num_tokens else 0.0  # an empty sum
    return Scores(num_sequences, num_tokens, cross_entropy, perplexity(cross_entropy))


def split_lower_bound(prepared: PreparedFolder, split: str) -> float:
    """Return the lower bound of the cross-entropy on a split of strings, in nats per token.

    LB = [Σ -log p(w | |w|) + |D| log N] / Σ (|w| + 1) for N valid lengths (DuSell & Chiang 2024, section 6).

    Raises:
        DataError: the folder lacks the probabilities or the number of lengths.
    """
    sequences = prepared.split(split)
    number_of_lengths = prepared.header.extra.get("number_of_lengths", {}).get(split)
    if sequences.log_probabilities is None or not isinstance(number_of_lengths, int):
        raise DataError(prepared.path, f"split {split!r} lacks its exact probabilities or its number of lengths")
    return lower_bound(sequences.log_probabilities, sequences.lengths, number_of_lengths)

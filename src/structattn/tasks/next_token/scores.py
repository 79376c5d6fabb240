"""Cross-entropy of a model over many batches."""

import math
from collections.abc import Callable, Iterable

import torch

from structattn.data.batching.sequences import Batch
from structattn.tasks.sequence_loss import batch_cross_entropy, num_target_tokens
from structattn.tasks.task import Scores

LARGEST_EXPONENT = 709.0  # exp of more is beyond the largest float


def perplexity(cross_entropy: float) -> float:
    """exp(cross_entropy), infinite where that is beyond a float."""
    return math.inf if cross_entropy > LARGEST_EXPONENT else math.exp(cross_entropy)


def score_batches(model: torch.nn.Module, batches: Iterable[Batch], after_batch: Callable[[], None]) -> Scores:
    """The scores of a model over batches, dropout off; sums over batches are kept in float64.

    Args:
        model: left in the mode in which it was found.
        batches: what to score.
        after_batch: called after each batch; may raise.
    """
    was_training = model.training
    model.eval()
    num_sequences, num_tokens, loss_sum = 0, 0, 0.0
    try:
        for batch in batches:
            with torch.no_grad():
                loss_sum += batch_cross_entropy(model, batch).item()
            num_sequences += len(batch.lengths)
            num_tokens += num_target_tokens(batch)
            after_batch()
    finally:
        model.train(was_training)
    cross_entropy = loss_sum / num_tokens if num_tokens else 0.0  # an empty sum
    return Scores(num_sequences, num_tokens, cross_entropy, perplexity(cross_entropy))

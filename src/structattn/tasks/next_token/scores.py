"""Cross-entropy of a model over many batches."""

import math
from collections.abc import Callable, Iterable

import torch

from structattn.data.batching.sequences import Batch
from structattn.tasks.sequence_loss import summed_nats, symbol_count
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
    sequences, symbols, nats = 0, 0, 0.0
    try:
        for batch in batches:
            with torch.no_grad():
                nats += summed_nats(model, batch).item()
            sequences, symbols = sequences + len(batch.lengths), symbols + symbol_count(batch)
            after_batch()
    finally:
        model.train(was_training)
    cross_entropy = nats / symbols if symbols else 0.0  # no symbols, nothing to be wrong about
    return Scores(sequences, symbols, cross_entropy, perplexity(cross_entropy))

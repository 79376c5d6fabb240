"""Cross-entropy of translations that are given."""

from collections.abc import Callable

import torch
from torch import Tensor

from structattn.data.pair_batching import PairBatch
from structattn.tasks.scoring import perplexity
from structattn.tasks.sequence_loss import FIRST_OUTPUT_ID, nats_of
from structattn.tasks.task import Scores
from structattn.tasks.translation.batches import PairExamples


def pair_scores(
    model: torch.nn.Module, examples: PairExamples, after_batch: Callable[[], None] = lambda: None
) -> Scores:
    """The scores of a model over pairs, dropout off; the model is left in the mode in which it was."""
    was_training = model.training
    model.eval()
    nats, symbols = 0.0, 0
    try:
        for numbers in examples.scoring_order():
            batch = examples.batch(numbers)
            with torch.no_grad():
                nats += nats_of(*pair_logits(model, batch)).item()
            symbols += int(batch.lengths.sum())
            after_batch()
    finally:
        model.train(was_training)
    return Scores(len(examples.pairs), symbols, nats / symbols, perplexity(nats / symbols))


def pair_logits(model: torch.nn.Module, batch: PairBatch) -> tuple[Tensor, Tensor]:
    """Logits (B, T, classes) of the targets given their sources and their own past, and the classes (B, T)."""
    batch = batch.to(next(model.parameters()).device)
    return model(batch.source, batch.inputs, batch.source_lengths, batch.lengths), batch.targets - FIRST_OUTPUT_ID

"""Cross-entropy of translations that are given.

Where a model spells, that of a word without a number is that of <unk> and of its spelling: -log p of the text itself.
"""

from collections.abc import Callable

import torch

from structattn.tasks.next_token.scores import perplexity
from structattn.tasks.task import Scores
from structattn.tasks.translation.batches import PairExamples
from structattn.tasks.translation.predictions import predictions


def pair_scores(
    model: torch.nn.Module, examples: PairExamples, after_batch: Callable[[], None] = lambda: None
) -> Scores:
    """The scores of a model over pairs, dropout off; the model is left in the mode in which it was."""
    was_training = model.training
    model.eval()
    loss_sum, num_tokens = 0.0, 0
    try:
        for numbers in examples.scoring_order():
            batch = examples.batch(numbers)
            with torch.no_grad():
                loss_sum += predictions(model, batch).row_losses().sum().item()
            num_tokens += int(batch.lengths.sum())
            after_batch()
    finally:
        model.train(was_training)
    return Scores(len(examples.pairs), num_tokens, loss_sum / num_tokens, perplexity(loss_sum / num_tokens))

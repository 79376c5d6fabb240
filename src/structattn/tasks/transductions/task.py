"""String transduction as a task."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from structattn.settings.run import RunSettings
from structattn.settings.training import SequenceBatches
from structattn.support.errors import SettingsError
from structattn.tasks.losses import CROSS_ENTROPY, Criterion
from structattn.tasks.task import Scores
from structattn.tasks.transductions.batches import Form, TransductionData, batch_of, form_of, transduction_data
from structattn.tasks.transductions.evaluate import scores_from_counts, split_counts
from structattn.text.batching.sequences import Batch, Indices
from structattn.text.folders.prepared import PreparedFolder

BATCHES_PER_EPOCH = 1000  # training pairs never repeat, so the length of an epoch is a convention


@dataclass(frozen=True)
class TransductionTask:
    """Predict y from x. See `structattn.tasks.task.Task`.

    Args:
        data: the transduction and its training pairs.
        prepared: holds the validation pairs.
        form: whether y is predicted all at once or symbol by symbol.
        batch_size: pairs per batch, all of one length.
        loss: the denominator of an update's loss: its pairs, or the tokens of y.
        criterion: the training loss.
    """

    data: TransductionData
    prepared: PreparedFolder
    form: Form
    batch_size: int
    loss: Literal["sequence_sum", "token_mean"]
    criterion: Criterion = CROSS_ENTROPY

    def training_batches(self, epoch: int) -> list[Indices]:
        """Return the next thousand batches of unseen pairs."""
        first = epoch * BATCHES_PER_EPOCH * self.batch_size
        return [first + np.arange(i * self.batch_size, (i + 1) * self.batch_size) for i in range(BATCHES_PER_EPOCH)]

    def batch(self, indices: Indices) -> Batch:
        """Return the training pairs with these indices."""
        first = int(indices[0])
        return batch_of(*self.data.training_pairs(first, len(indices)), self.data.vocabulary, self.form, first)

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Return the criterion of a batch, by default -log p(y | x) summed over its pairs."""
        return self.criterion(model, batch)

    def loss_denominator(self, batch: Batch) -> int:
        """Return the number of pairs or of tokens of y."""
        return self.num_tokens(batch) if self.loss == "token_mean" else len(batch.lengths)

    def num_tokens(self, batch: Batch) -> int:
        """Return the number of tokens of y."""
        return int((batch.targets > 0).sum())

    def validate(self, model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        """Score the validation pairs."""
        return scores_from_counts(split_counts(model, self.data, self.prepared, "valid", self.form, after_batch))


def transduction_task(prepared: PreparedFolder, settings: RunSettings) -> TransductionTask:
    """Return the task of a prepared folder.

    Raises:
        DataError: the folder holds something else.
        SettingsError: the batches do not have a fixed number of pairs.
    """
    training = settings.training
    batches = training.batches
    if not isinstance(batches, SequenceBatches):
        raise SettingsError(f"training.batches.kind: {batches.kind!r} does not suit pairs; expected 'sequences'")
    data, criterion = transduction_data(prepared, settings.seed), Criterion.from_settings(training)
    return TransductionTask(data, prepared, form_of(settings), batches.batch_size, training.loss, criterion)

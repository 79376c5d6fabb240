"""String transduction as a task."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from structattn.settings.run import RunSettings
from structattn.settings.training import SequenceBatches
from structattn.support.errors import SettingsError
from structattn.tasks.losses import Criterion
from structattn.tasks.task import Scores, SequenceTask
from structattn.tasks.transductions.batches import Form, TransductionData, batch_of, form_of, transduction_data
from structattn.tasks.transductions.evaluate import scores_from_counts, split_counts
from structattn.text.batching.sequences import Batch, Indices
from structattn.text.folders.prepared import PreparedFolder

BATCHES_PER_EPOCH = 1000  # training pairs never repeat, so the length of an epoch is a convention


@dataclass(frozen=True)
class DrawnPairs:
    """Training pairs of a transduction, each batch of one length.

    ``form``: whether y is predicted all at once or symbol by symbol.
    """

    data: TransductionData
    form: Form
    batch_size: int

    def training_order(self, epoch: int) -> list[Indices]:
        """Return the next thousand batches of unseen pairs."""
        first = epoch * BATCHES_PER_EPOCH * self.batch_size
        return [first + np.arange(i * self.batch_size, (i + 1) * self.batch_size) for i in range(BATCHES_PER_EPOCH)]

    def batch(self, indices: Indices) -> Batch:
        """Return the pairs with these indices."""
        first = int(indices[0])
        return batch_of(*self.data.training_pairs(first, len(indices)), self.data.vocabulary, self.form, first)


def transduction_task(prepared: PreparedFolder, settings: RunSettings) -> SequenceTask:
    """Return the task of predicting y from x.

    Raises:
        DataError: the folder holds something else.
        SettingsError: the batches do not have a fixed number of pairs.
    """
    training = settings.training
    batches = training.batches
    if not isinstance(batches, SequenceBatches):
        raise SettingsError(f"training.batches.kind: {batches.kind!r} does not suit pairs; expected 'sequences'")
    data, form = transduction_data(prepared, settings.seed), form_of(settings)

    def validate(model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        return scores_from_counts(split_counts(model, data, prepared, "valid", form, after_batch))

    train = DrawnPairs(data, form, batches.batch_size)
    return SequenceTask(train, validate, training.loss, Criterion.from_settings(training))

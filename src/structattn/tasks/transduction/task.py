"""The task of turning strings into others."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from structattn.data.batching.sequences import Batch, Indices
from structattn.data.folders import PreparedFolder
from structattn.settings.run import RunSettings
from structattn.settings.training import SequenceBatches
from structattn.support.errors import SettingsError
from structattn.tasks.next_token.scores import perplexity
from structattn.tasks.objective import NATS, Objective
from structattn.tasks.task import Scores
from structattn.tasks.transduction.batches import Form, TransductionData, batch_of, stored_pairs, transduction_data
from structattn.tasks.transduction.scores import Tally, tally

BATCHES_IN_EPOCH = 1000  # pairs never come twice, so an epoch is only a measure


@dataclass(frozen=True)
class TransductionTask:
    """Answer with y when x is asked; see `structattn.tasks.task.Task`.

    Args:
        data: what is asked, and how training pairs are drawn.
        prepared: holds the validation pairs.
        form: whether y is predicted all at once or symbol by symbol.
        size: pairs in a batch, all of one length.
        loss: what the summed nats of an update are divided by: its pairs, or the symbols of y.
        objective: what training makes small.
    """

    data: TransductionData
    prepared: PreparedFolder
    form: Form
    size: int
    loss: Literal["sequence_sum", "token_mean"]
    objective: Objective = NATS

    def training_batches(self, epoch: int) -> list[Indices]:
        """The next thousand batches of pairs that were never seen."""
        first = epoch * BATCHES_IN_EPOCH * self.size
        return [first + np.arange(i * self.size, (i + 1) * self.size) for i in range(BATCHES_IN_EPOCH)]

    def batch(self, indices: Indices) -> Batch:
        """The training pairs of these numbers."""
        first = int(indices[0])
        return batch_of(*self.data.training_pairs(first, len(indices)), self.data.vocabulary, self.form, first)

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """What training makes small: -log p(all y given their x), if nothing else is asked for."""
        return self.objective(model, batch)

    def loss_denominator(self, batch: Batch) -> int:
        """The batch's pairs or symbols of y."""
        return self.num_tokens(batch) if self.loss == "token_mean" else len(batch.lengths)

    def num_tokens(self, batch: Batch) -> int:
        """The symbols of y."""
        return int((batch.targets > 0).sum())

    def validate(self, model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        """Score the validation pairs."""
        return scores_of_tallies(tallies_of(model, self.data, self.prepared, "valid", self.form, after_batch))


def tallies_of(
    model: torch.nn.Module,
    data: TransductionData,
    prepared: PreparedFolder,
    split: str,
    form: Form,
    after_batch: Callable[[], None] = lambda: None,
) -> list[Tally]:
    """What a model reaches on each length of a split, dropout off; the model is left in the mode in which it was."""
    was_training = model.training
    model.eval()
    tallies = []
    try:
        for _, x, y in stored_pairs(prepared, split):
            tallies.append(tally(model, data.task, data.vocabulary, x, y, form))
            after_batch()
    finally:
        model.train(was_training)
    return tallies


def scores_of_tallies(tallies: list[Tally]) -> Scores:
    """Cross-entropy over all symbols; accuracy as the mean over lengths, as published."""
    num_tokens = sum(each.num_tokens for each in tallies)
    cross_entropy = sum(each.loss_sum for each in tallies) / num_tokens
    return Scores(
        num_sequences=sum(each.num_pairs for each in tallies),
        num_tokens=num_tokens,
        cross_entropy=cross_entropy,
        perplexity=perplexity(cross_entropy),
        accuracy=fmean(each.accuracy for each in tallies),
    )


def _task(form: Form) -> Callable[[PreparedFolder, RunSettings], TransductionTask]:
    def build(prepared: PreparedFolder, settings: RunSettings) -> TransductionTask:
        """The task of a prepared folder.

        Raises:
            DataError: the folder holds something else.
            SettingsError: the batches are not of a fixed number of pairs.
        """
        training = settings.training
        batches = training.batches
        if not isinstance(batches, SequenceBatches):
            raise SettingsError(f"training.batches.kind: {batches.kind!r} does not suit pairs; expected 'sequences'")
        data = transduction_data(prepared, settings.seed)
        return TransductionTask(data, prepared, form, batches.batch_size, training.loss, Objective.of(training))

    return build


masked_transduction_task = _task("masked")
autoregressive_transduction_task = _task("autoregressive")

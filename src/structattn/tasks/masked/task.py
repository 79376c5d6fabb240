"""Masked language modeling of text as a task."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from structattn.settings.run import RunSettings
from structattn.tasks.losses import CROSS_ENTROPY, Criterion
from structattn.tasks.masked.batches import MaskedExamples, masked_examples
from structattn.tasks.masked.evaluate import masked_cross_entropy_sum, num_predicted, score_masked
from structattn.tasks.task import Scores
from structattn.text.batching.sequences import Batch, Indices
from structattn.text.folders.prepared import PreparedFolder

VALIDATION_SEED = 0  # the masks of the validation split are the same in all validations of all runs


@dataclass(frozen=True)
class MaskedLanguageModelingTask:
    """Predict some tokens from corrupted text. See `structattn.tasks.task.Task`.

    Args:
        train: the training examples, whose masks differ from epoch to epoch.
        valid: the examples scored during training, with fixed masks.
        loss: the denominator of an update's loss: its sequences, or the tokens that it predicts.
        criterion: the training loss.
    """

    train: MaskedExamples
    valid: MaskedExamples
    loss: Literal["sequence_sum", "token_mean"]
    criterion: Criterion = CROSS_ENTROPY

    def training_batches(self, epoch: int) -> list[Indices]:
        """Return the shuffled batches of an epoch."""
        return self.train.training_order(epoch)

    def batch(self, indices: Indices) -> Batch:
        """Return the training examples with these numbers."""
        return self.train.batch(indices)

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Return the criterion of a batch, by default -log p of its predicted tokens."""
        if self.criterion.receptive_field.weight:
            return self.criterion(model, batch)
        return masked_cross_entropy_sum(model, batch, self.criterion.label_smoothing)

    def loss_denominator(self, batch: Batch) -> int:
        """Return the number of sequences or of predicted tokens, at least 1: a batch may predict none."""
        return max(1, self.num_tokens(batch)) if self.loss == "token_mean" else len(batch.lengths)

    def num_tokens(self, batch: Batch) -> int:
        """Return the number of predicted tokens."""
        return num_predicted(batch)

    def validate(self, model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        """Score the validation split."""
        batches = (self.valid.batch(indices) for indices in self.valid.examples.scoring_order())
        return score_masked(model, batches, after_batch)


def masked_language_modeling_task(prepared: PreparedFolder, settings: RunSettings) -> MaskedLanguageModelingTask:
    """Return the task of predicting masked tokens of text, as sentences or as a stream cut into windows.

    Raises:
        DataError, SettingsError: the folder or the batches do not suit the task.
    """
    return MaskedLanguageModelingTask(
        train=masked_examples(prepared, "train", settings, settings.seed),
        valid=masked_examples(prepared, "valid", settings, VALIDATION_SEED),
        loss=settings.training.loss,
        criterion=Criterion.from_settings(settings.training),
    )

"""Next-token prediction; text and formal languages differ in their batches and in whether a lower bound is known."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from structattn.settings.run import RunSettings
from structattn.support.errors import DataError
from structattn.tasks.language_modeling.batches import (
    BatchSettings,
    Examples,
    formal_language_batches,
    split_examples,
    text_batches,
)
from structattn.tasks.language_modeling.evaluate import score_batches, split_lower_bound
from structattn.tasks.losses import CROSS_ENTROPY, Criterion
from structattn.tasks.task import Scores
from structattn.text.batching.sequences import Batch, Indices
from structattn.text.folders.prepared import PreparedFolder


@dataclass(frozen=True)
class NextTokenTask:
    """Predict each token, and the end, from the tokens before it. See `structattn.tasks.task.Task`.

    Args:
        train: the training examples.
        valid: the examples scored during training.
        loss: the denominator of an update's loss: its sequences, as in DuSell & Chiang (2024), or its tokens.
        lower_bound: the entropy of the validation split's distribution in nats per token, if known.
        criterion: the training loss.
    """

    train: Examples
    valid: Examples
    loss: Literal["sequence_sum", "token_mean"]
    lower_bound: float | None = None
    criterion: Criterion = CROSS_ENTROPY

    def training_batches(self, epoch: int) -> list[Indices]:
        """Return the shuffled batches of an epoch."""
        return self.train.training_order(epoch)

    def batch(self, indices: Indices) -> Batch:
        """Return the training examples with these indices."""
        return self.train.batch(indices)

    def loss_sum(self, model: torch.nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Return the criterion of a batch, by default -log p(batch)."""
        return self.criterion(model, batch)

    def loss_denominator(self, batch: Batch) -> int:
        """Return the number of sequences or of tokens."""
        return self.num_tokens(batch) if self.loss == "token_mean" else len(batch.lengths)

    def num_tokens(self, batch: Batch) -> int:
        """Return the number of targets, ``<eos>`` included and padding excluded."""
        return int(batch.lengths.sum())

    def validate(self, model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        """Score the validation split."""
        batches = (self.valid.batch(indices) for indices in self.valid.scoring_order())
        return replace(score_batches(model, batches, after_batch), lower_bound=self.lower_bound)


def language_modeling_task(prepared: PreparedFolder, settings: RunSettings) -> NextTokenTask:
    """Return the task of predicting the tokens of text, as sentences or as a stream cut into windows.

    Raises:
        DataError, SettingsError: the folder or the batches do not suit the task.
    """
    return _task(prepared, settings, text_batches(prepared, settings.training.batches))


def formal_language_task(prepared: PreparedFolder, settings: RunSettings) -> NextTokenTask:
    """Return the task of predicting the symbols of a formal language (DuSell & Chiang 2024, section 6).

    Raises:
        DataError, SettingsError: the folder or the batches do not suit the task.
    """
    task = _task(prepared, settings, formal_language_batches(prepared, settings.training.batches))
    bound = split_lower_bound(prepared, "valid")
    if bound is None:
        raise DataError(prepared.path, "split 'valid' lacks its exact probabilities or its number of lengths")
    return replace(task, lower_bound=bound)


def _task(prepared: PreparedFolder, settings: RunSettings, batches: BatchSettings) -> NextTokenTask:
    return NextTokenTask(
        train=split_examples(prepared, "train", batches, settings.seed, settings.training.curriculum),
        valid=split_examples(prepared, "valid", batches),
        loss=settings.training.loss,
        criterion=Criterion.from_settings(settings.training),
    )

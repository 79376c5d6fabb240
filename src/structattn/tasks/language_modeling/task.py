"""Next-token prediction; text and formal languages differ in their batches and in whether a lower bound is known."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch

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
from structattn.tasks.language_modeling.trees import with_tree_regularization
from structattn.tasks.losses import CROSS_ENTROPY, Criterion
from structattn.tasks.task import Scores, SequenceTask
from structattn.text.folders.prepared import PreparedFolder


def next_token_task(
    train: Examples,
    valid: Examples,
    loss: Literal["sequence_sum", "token_mean"],
    lower_bound: float | None = None,
    criterion: Criterion = CROSS_ENTROPY,
) -> SequenceTask:
    """Return the task of predicting each token, and the end, from the tokens before it.

    The entropy of the validation split's distribution, in nats per token, is its lower bound, if it is known.
    """

    def validate(model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        batches = (valid.batch(indices) for indices in valid.scoring_order())
        return replace(score_batches(model, batches, after_batch), lower_bound=lower_bound)

    return SequenceTask(train, validate, loss, criterion)


def language_modeling_task(prepared: PreparedFolder, settings: RunSettings) -> SequenceTask:
    """Return the task of predicting the tokens of text, as sentences or as a stream cut into windows.

    Raises:
        DataError, SettingsError: the folder or the batches do not suit the task.
    """
    task = _task(prepared, settings, text_batches(prepared, settings.training.batches))
    return task if settings.training.tree_regularization is None else with_tree_regularization(task, prepared, settings)


def formal_language_task(prepared: PreparedFolder, settings: RunSettings) -> SequenceTask:
    """Return the task of predicting the symbols of a formal language (DuSell & Chiang 2024, section 6).

    Raises:
        DataError, SettingsError: the folder or the batches do not suit the task.
    """
    batches, bound = formal_language_batches(prepared, settings.training.batches), split_lower_bound(prepared, "valid")
    task = _task(prepared, settings, batches, bound)
    if bound is None:
        raise DataError(prepared.path, "split 'valid' lacks its exact probabilities or its number of lengths")
    return task


def _task(
    prepared: PreparedFolder, settings: RunSettings, batches: BatchSettings, lower_bound: float | None = None
) -> SequenceTask:
    return next_token_task(
        train=split_examples(prepared, "train", batches, settings.seed, settings.training.curriculum),
        valid=split_examples(prepared, "valid", batches),
        loss=settings.training.loss,
        lower_bound=lower_bound,
        criterion=Criterion.from_settings(settings.training),
    )

"""Masked language modeling of text as a task."""

from collections.abc import Callable

import torch
from torch import Tensor

from structattn.settings.run import RunSettings
from structattn.support.errors import DataError
from structattn.support.shapes import Float
from structattn.tasks.language_modeling.evaluate import score_batches
from structattn.tasks.losses import Criterion
from structattn.tasks.masked.batches import masked_examples
from structattn.tasks.masked.evaluate import masked_cross_entropy_sum
from structattn.tasks.task import Scores, SequenceTask, num_predicted
from structattn.text.batching.sequences import Batch
from structattn.text.folders.prepared import PreparedFolder

VALIDATION_SEED = 0  # the masks of the validation split are the same in all validations of all runs


def masked_language_modeling_task(prepared: PreparedFolder, settings: RunSettings) -> SequenceTask:
    """Return the task of predicting masked tokens of text, as sentences or as a stream cut into windows.

    The masks of the training examples differ from epoch to epoch.

    Raises:
        DataError, SettingsError: the folder or the batches do not suit the task.
    """
    valid = masked_examples(prepared, "valid", settings, VALIDATION_SEED)
    criterion = Criterion.from_settings(settings.training)
    if not any(num_predicted(valid.batch(indices)) for indices in valid.examples.scoring_order()):
        reason = f"training.masking.share={settings.training.masking.share:g} masks none of its tokens"
        raise DataError(prepared.path / "valid", f"{reason}; expected more text or a larger share")

    def loss(model: torch.nn.Module, batch: Batch) -> Float[Tensor, ""]:
        if criterion.receptive_field.weight:
            return criterion(model, batch)
        return masked_cross_entropy_sum(model, batch, criterion.label_smoothing)

    def validate(model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        batches = (valid.batch(indices) for indices in valid.examples.scoring_order())
        return score_batches(model, batches, after_batch, masked_cross_entropy_sum)

    return SequenceTask(
        masked_examples(prepared, "train", settings, settings.seed), validate, settings.training.loss, loss
    )

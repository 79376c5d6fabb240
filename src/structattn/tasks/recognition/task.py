"""Recognition as a task: label, language modeling and next symbols of strings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from structattn.models.mode import evaluating
from structattn.settings.run import RunSettings
from structattn.support.errors import SettingsError
from structattn.support.shapes import Bool, Float
from structattn.tasks.losses import model_inputs
from structattn.tasks.recognition.batches import RecognitionBatch, RecognitionExamples, recognition_examples
from structattn.tasks.recognition.losses import (
    RecognitionCriterion,
    label_logits,
    label_losses,
    member_losses,
    recognition_logits,
)
from structattn.tasks.task import Scores, perplexity
from structattn.text.batching.sequences import Indices
from structattn.text.folders.prepared import PreparedFolder


@dataclass(frozen=True)
class RecognitionTask:
    """Decide whether strings are members of a language. See ``Task``; a string counts as one token.

    Args:
        train: the training strings.
        valid: the strings for validation.
        criterion: the loss.
    """

    train: RecognitionExamples
    valid: RecognitionExamples
    criterion: RecognitionCriterion

    def training_batches(self, epoch: int) -> list[Indices]:
        """Return the batches of an epoch."""
        return self.train.training_order(epoch)

    def batch(self, indices: Indices) -> RecognitionBatch:
        """Return the training strings with these indices."""
        return self.train.batch(indices)

    def loss_sum(self, model: torch.nn.Module, batch: RecognitionBatch) -> Float[Tensor, ""]:
        """Return the sum of losses of a batch."""
        return self.criterion(model, batch)

    def loss_denominator(self, batch: RecognitionBatch) -> int:
        """Return the number of strings."""
        return len(batch.lengths)

    def num_tokens(self, batch: RecognitionBatch) -> int:
        """Return the number of labels."""
        return len(batch.lengths)

    def validate(self, model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
        """Return the mean of -log p(label) over the strings for validation, and the accuracy."""
        loss, correct = 0.0, 0
        with evaluating(model):
            for indices in self.valid.scoring_order():
                scores = batch_scores(model, self.valid.batch(indices))
                loss, correct = loss + scores.losses.sum().item(), correct + int(scores.right.sum())
                after_batch()
        count = len(self.valid.edits)
        return Scores(count, count, loss / count, perplexity(loss / count), accuracy=correct / count)


class StringScores(NamedTuple):
    """Scores of the strings of a batch, on the CPU.

    Args:
        losses: -log p(label), in float64.
        right: whether the string is classified correctly; accepted from a logit of 0 on.
        of_members: -log p(string <eos>) of members and 0 of negatives, in float64; None without an output of language
            modeling.
    """

    losses: Float[Tensor, " batch"]
    right: Bool[Tensor, " batch"]
    of_members: Float[Tensor, " batch"] | None


@torch.no_grad()
def batch_scores(model: torch.nn.Module, batch: RecognitionBatch) -> StringScores:
    """Score each string of a batch."""
    inputs, lengths, classes = model_inputs(model, batch)
    logits = recognition_logits(model, inputs, lengths)
    sizes, members = batch.lengths.to(inputs.device), batch.labels.to(inputs.device)
    right = (label_logits(logits, sizes) >= 0) == members
    modeling = logits.language_modeling
    of_members = None if modeling is None else member_losses(modeling, classes).double().cpu()
    return StringScores(label_losses(logits, sizes, members).double().cpu(), right.cpu(), of_members)


def recognition_task(prepared: PreparedFolder, settings: RunSettings) -> RecognitionTask:
    """Return the task of recognizing the language of a prepared folder.

    Raises:
        DataError: the folder holds data of another kind, or a split is missing or empty.
        SettingsError: the batches are of the wrong kind, or there is a regularizer or label smoothing.
    """
    training = settings.training
    for field in ("label_smoothing", "receptive_field_weight"):
        if getattr(training, field):
            raise SettingsError(f"training.{field}: {getattr(training, field)!r}; recognition has none")
    split = training.recognition.validation
    return RecognitionTask(
        recognition_examples(prepared, "train", training.batches, training.recognition, settings.seed),
        recognition_examples(prepared, split, training.batches, training.recognition),
        RecognitionCriterion(training.recognition),
    )

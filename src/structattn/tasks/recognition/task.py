"""Recognition as a task: label, language modeling and next symbols of strings."""

from collections.abc import Callable
from functools import partial
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
from structattn.tasks.task import ExampleTask, Scores, perplexity
from structattn.text.folders.prepared import PreparedFolder


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


def validate_strings(examples: RecognitionExamples, model: torch.nn.Module, after_batch: Callable[[], None]) -> Scores:
    """Return the mean of -log p(label) over strings, which count as one token each, and the accuracy."""
    loss, correct = 0.0, 0
    with evaluating(model):
        for indices in examples.scoring_order():
            scores = batch_scores(model, examples.batch(indices))
            loss, correct = loss + scores.losses.sum().item(), correct + int(scores.right.sum())
            after_batch()
    count = len(examples.edits)
    return Scores(count, count, loss / count, perplexity(loss / count), accuracy=correct / count)


def recognition_task(prepared: PreparedFolder, settings: RunSettings) -> ExampleTask[RecognitionBatch]:
    """Return the task of recognizing the language of a prepared folder; a string counts as one token.

    Raises:
        DataError: the folder holds data of another kind, or a split is missing or empty.
        SettingsError: the batches are of the wrong kind, or there is a regularizer or label smoothing.
    """
    training = settings.training
    for field in ("label_smoothing", "receptive_field_weight"):
        if getattr(training, field):
            raise SettingsError(f"training.{field}: {getattr(training, field)!r}; recognition has none")
    batches, recognition = training.batches, training.recognition
    valid = recognition_examples(prepared, recognition.validation, batches, recognition)
    return ExampleTask(
        recognition_examples(prepared, "train", batches, recognition, settings.seed),
        partial(validate_strings, valid),
        "sequence_sum",
        RecognitionCriterion(recognition),
        count=lambda batch: len(batch.lengths),
    )

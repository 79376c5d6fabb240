"""Recognition as a task: label, language modeling and next symbols of strings, and their losses."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.models.mode import evaluating
from structattn.models.recognition import RecognitionHeads, RecognitionLogits
from structattn.settings.run import RunSettings
from structattn.settings.training import Recognition
from structattn.support.errors import SettingsError
from structattn.support.shapes import Float
from structattn.support.special_tokens import PADDING_CLASS
from structattn.tasks.losses import model_inputs, to_float32
from structattn.tasks.recognition.batches import RecognitionBatch, RecognitionExamples, recognition_examples
from structattn.tasks.task import Scores, perplexity
from structattn.text.batching.sequences import Indices
from structattn.text.folders.prepared import PreparedFolder


@dataclass(frozen=True)
class RecognitionCriterion:
    """The sum of the losses of a batch.

        L = -log p(label) + [member] (c_lm L_lm + c_ns L_ns)

    where p(member) = σ(logit after the last symbol), L_lm = mean over t = 0..n of -log softmax(o_t)[w_{t+1}], w_{n+1} =
    <eos>, and L_ns = mean over t and over symbols a, <eos> included, of the binary cross-entropy of σ(z_{t,a}) and
    whether a may follow w_1..t. Divided by the number of strings, the auxiliary losses are means over all of them, not
    over the members alone.

    Args:
        weights: c_lm and c_ns.
    """

    weights: Recognition

    def __call__(self, model: torch.nn.Module, batch: RecognitionBatch) -> Float[Tensor, ""]:
        """Return the sum of losses of a batch."""
        inputs, lengths, classes = model_inputs(model, batch)
        logits = recognition_logits(model, inputs, lengths)
        sizes, members = batch.lengths.to(inputs.device), batch.labels.to(inputs.device)
        loss = label_losses(logits, sizes, members).sum()
        if logits.language_modeling is not None:
            rows = to_float32(logits.language_modeling)
            of_symbols = F.cross_entropy(rows.mT, classes, ignore_index=PADDING_CLASS, reduction="none")
            loss = loss + self.weights.language_modeling * (of_symbols.sum(1) / sizes).sum()
        if logits.next_symbols is not None and batch.next_symbols is not None:
            allowed, rows = batch.next_symbols.to(inputs.device), to_float32(logits.next_symbols)
            of_symbols = F.binary_cross_entropy_with_logits(rows, allowed.to(rows.dtype), reduction="none").mean(-1)
            counts = (classes != PADDING_CLASS).to(rows.dtype)
            loss = loss + self.weights.next_symbols * ((of_symbols * counts).sum(1) / sizes).sum()
        return loss


def recognition_logits(model: torch.nn.Module, inputs: Tensor, lengths: Tensor | None) -> RecognitionLogits:
    """Return the outputs of a model after each prefix."""
    heads = model.output
    assert isinstance(heads, RecognitionHeads)
    return heads.split(model(inputs, lengths=lengths))


def label_logits(logits: RecognitionLogits, sizes: Tensor) -> Float[Tensor, " batch"]:
    """Return the logit of each string, after its last symbol; ``sizes`` are numbers of positions, <bos> included."""
    return to_float32(logits.label).gather(1, (sizes - 1)[:, None])[:, 0]


def label_losses(logits: RecognitionLogits, sizes: Tensor, members: Tensor) -> Float[Tensor, " batch"]:
    """Return -log p(label) of each string, in float32 or better."""
    of_strings = label_logits(logits, sizes)
    return F.binary_cross_entropy_with_logits(of_strings, members.to(of_strings.dtype), reduction="none")


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
                losses, right = batch_scores(model, self.valid.batch(indices))
                loss, correct = loss + losses.sum().item(), correct + int(right.sum())
                after_batch()
        count = len(self.valid.edits)
        return Scores(count, count, loss / count, perplexity(loss / count), accuracy=correct / count)


@torch.no_grad()
def batch_scores(model: torch.nn.Module, batch: RecognitionBatch) -> tuple[Tensor, Tensor]:
    """Return -log p(label) of each string in float64, and whether it is classified correctly; accepted from 0 on."""
    inputs, lengths, _ = model_inputs(model, batch)
    logits = recognition_logits(model, inputs, lengths)
    sizes, members = batch.lengths.to(inputs.device), batch.labels.to(inputs.device)
    right = (label_logits(logits, sizes) >= 0) == members
    return label_losses(logits, sizes, members).double().cpu(), right.cpu()


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

"""Training losses: the cross-entropy in nats, label smoothing and the receptive-field regulariser."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from structattn.data.batching.sequences import Batch
from structattn.models.protocols import AttendingModel
from structattn.operators import receptive_field
from structattn.settings.training import LabelSmoothing, TrainingSettings
from structattn.support.errors import SettingsError
from structattn.support.special_tokens import PADDING_CLASS, class_of
from structattn.tasks.label_smoothing import label_smoothed_cross_entropy, to_float32

_EXPECTED = "expected layers with softmax or hard attention"


@dataclass(frozen=True)
class Criterion:
    """The training loss: cross-entropy, optionally label-smoothed, plus λ Σ_i Σ_j s_ij over predicting positions i.

    Divided by the number of these positions, the second term is λ R, the regulariser of the Discrete Transformer paper
    (section 5.1) in its non-constant form.

    Args:
        label_smoothing: smoothing of the targets; None for plain cross-entropy.
        receptive_field_weight: λ.
    """

    label_smoothing: LabelSmoothing | None = None
    receptive_field_weight: float = 0.0

    @classmethod
    def from_settings(cls, training: TrainingSettings) -> "Criterion":
        """Return the criterion of a run."""
        return cls(training.label_smoothing, training.receptive_field_weight)

    def __call__(self, model: torch.nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Return the sum of losses of a batch.

        Args:
            model: ``model(tokens, lengths) -> logits``; for λ > 0 an ``AttendingModel``.
            batch: inputs start with ``<bos>``, targets end with ``<eos>``.

        Raises:
            SettingsError: λ > 0, and a layer returns no attention weights.
        """
        inputs, lengths, classes = model_inputs(model, batch)
        if not self.receptive_field_weight:
            return cross_entropy_sum(model(inputs, lengths=lengths), classes, self.label_smoothing)
        if not isinstance(model, AttendingModel):
            raise SettingsError(
                f"training.receptive_field_weight: this kind of model returns no attention weights; {_EXPECTED}"
            )
        logits, weights = model.attend(inputs, lengths)
        field = receptive_field(_weights_of_every_layer(weights), lengths=lengths)
        predicts = (classes != PADDING_CLASS)[..., None]
        regulariser = self.receptive_field_weight * (field * predicts).sum()
        return cross_entropy_sum(logits, classes, self.label_smoothing) + regulariser


CROSS_ENTROPY = Criterion()


def _weights_of_every_layer(weights: Sequence[Tensor | None]) -> list[Tensor]:
    found = [to_float32(of_layer) for of_layer in weights if of_layer is not None]
    if len(found) < len(weights):
        missing = [of_layer is None for of_layer in weights].index(True)
        raise SettingsError(
            f"training.receptive_field_weight: layer {missing} returns no attention weights; {_EXPECTED}"
        )
    return found


def model_inputs(model: torch.nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the input ids, lengths and target classes of a batch on the model's device.

    Lengths are None where no row is padded, so that models skip their masks.
    """
    device = next(model.parameters()).device
    no_padding = batch.lengths.numel() and int(batch.lengths.min()) == batch.inputs.shape[1]
    lengths = None if no_padding else batch.lengths.to(device)  # compared on the CPU, to avoid a synchronisation
    return batch.inputs.to(device), lengths, class_of(batch.targets).to(device)


def cross_entropy_sum(
    logits: Float[Tensor, "batch time classes"],
    classes: Int[Tensor, "batch time"],
    label_smoothing: LabelSmoothing | None = None,
) -> Float[Tensor, ""]:
    """Return -Σ log softmax(logits)[class] over all positions that are not padding, in float32 or better."""
    rows, targets = to_float32(logits).flatten(0, 1), classes.flatten()
    if label_smoothing is not None:
        return label_smoothed_cross_entropy(rows, targets, label_smoothing, PADDING_CLASS)
    return F.cross_entropy(rows, targets, ignore_index=PADDING_CLASS, reduction="sum")


def token_losses(
    logits: Float[Tensor, "batch time classes"], classes: Int[Tensor, "batch time"]
) -> Float[Tensor, "batch time"]:
    """Return -log softmax(logits)[class] of each position, 0 at padding, in float32 or better."""
    rows, targets = to_float32(logits).flatten(0, 1), classes.flatten()
    return F.cross_entropy(rows, targets, ignore_index=PADDING_CLASS, reduction="none").view(classes.shape)

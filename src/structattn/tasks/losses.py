"""Training losses: the cross-entropy in nats, label smoothing and the receptive-field regularizer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from structattn.models.protocols import AttendingModel
from structattn.operators import receptive_field, receptive_field_size
from structattn.operators.receptive_field import Form, Union
from structattn.settings.training import LabelSmoothing, TrainingSettings
from structattn.support.errors import SettingsError
from structattn.support.shapes import Bool, Float, Int
from structattn.support.special_tokens import CLASS_OFFSET, PADDING_CLASS
from structattn.text.batching.sequences import Batch

_EXPECTED = "expected layers with softmax or hard attention"


@dataclass(frozen=True)
class ReceptiveFieldRegularizer:
    """λ times the size of the receptive fields of predicting positions (Discrete Transformer paper, section 5.1).

    Summed as ``receptive_field_size`` does: λ Σ_i Σ_j s_ij by default, which is λ R after the division by the number of
    predicting positions i.

    Args:
        weight: λ.
        recursion: ``union`` of ``receptive_field``.
    """

    weight: float = 0.0
    form: Form = "mean"
    own_position: bool = True
    recursion: Union = "clamp"

    @classmethod
    def from_settings(cls, training: TrainingSettings) -> "ReceptiveFieldRegularizer":
        """Return the regularizer of a run."""
        return cls(
            training.receptive_field_weight,
            training.receptive_field_form,
            training.receptive_field_own_position,
            training.receptive_field_recursion,
        )

    def __call__(
        self, field: Float[Tensor, "batch time inputs"], predicts: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, ""]:
        """Return the sum over a batch of fields, (B, T, N), of the positions where ``predicts`` is true."""
        return self.weight * receptive_field_size(
            field, form=self.form, counted=predicts, own_position=self.own_position, reduction="sum"
        )


NO_REGULARIZER = ReceptiveFieldRegularizer()


@dataclass(frozen=True)
class Criterion:
    """The training loss: cross-entropy, optionally label-smoothed, plus the receptive-field regularizer."""

    label_smoothing: LabelSmoothing | None = None
    receptive_field: ReceptiveFieldRegularizer = NO_REGULARIZER

    @classmethod
    def from_settings(cls, training: TrainingSettings) -> "Criterion":
        """Return the criterion of a run."""
        return cls(training.label_smoothing, ReceptiveFieldRegularizer.from_settings(training))

    def __call__(self, model: torch.nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Return the sum of losses of a batch.

        Args:
            model: ``model(tokens, lengths) -> logits``; for λ > 0 an ``AttendingModel``.
            batch: inputs start with ``<bos>``, targets end with ``<eos>``.

        Raises:
            SettingsError: λ > 0, and a layer returns no attention weights.
        """
        inputs, lengths, classes = model_inputs(model, batch)
        if not self.receptive_field.weight:
            return cross_entropy_sum(model(inputs, lengths=lengths), classes, self.label_smoothing)
        if not isinstance(model, AttendingModel):
            raise SettingsError(
                f"training.receptive_field_weight: this kind of model returns no attention weights; {_EXPECTED}"
            )
        logits, weights = model.attend(inputs, lengths)
        field = receptive_field(_weights_of_every_layer(weights), lengths=lengths, union=self.receptive_field.recursion)
        regularizer = self.receptive_field(field, classes != PADDING_CLASS)
        return cross_entropy_sum(logits, classes, self.label_smoothing) + regularizer


CROSS_ENTROPY = Criterion()


def _weights_of_every_layer(weights: Sequence[Tensor | None]) -> list[Tensor]:
    known = [to_float32(of_layer) for of_layer in weights if of_layer is not None]
    if len(known) < len(weights):
        missing = [of_layer is None for of_layer in weights].index(True)
        raise SettingsError(
            f"training.receptive_field_weight: layer {missing} returns no attention weights; {_EXPECTED}"
        )
    return known


def model_inputs(model: torch.nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return the input ids, lengths and target classes of a batch on the model's device.

    Lengths are None where no row is padded, so that models skip their masks.
    """
    device = next(model.parameters()).device  # plainly: a training step goes through few functions
    no_padding = batch.lengths.numel() and int(batch.lengths.min()) == batch.inputs.shape[1]
    lengths = None if no_padding else batch.lengths.to(device)  # compared on the CPU, to avoid a synchronisation
    return batch.inputs.to(device), lengths, batch.targets.to(device) - CLASS_OFFSET


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


def label_smoothed_cross_entropy(
    logits: Float[Tensor, "n classes"], classes: Int[Tensor, " n"], smoothing: LabelSmoothing, ignore_index: int
) -> Float[Tensor, ""]:
    """Return -Σ_i Σ_c q_i(c) log p_i(c) over the rows i whose class y is not ``ignore_index``.

    The target distribution q, for C classes:

        formula      at y               elsewhere    total
        torch        1 - ε + ε / C      ε / C        1
        you          1 - ε              ε / (C + 1)  1 - 2 ε / (C + 1)
        annotated    1 - ε              ε / (C - 1)  1
        fairseq      1 - ε              ε / C        1 - ε / C

    The last three count one more class, <pad>, which gets no mass in the first two of them and has no logit here. Two
    of the implementations use the Kullback-Leibler divergence instead, which differs by a constant. Computed in float32
    or better; differentiable once. Cost: two passes over ``logits``, and the memory of their gradient.
    """
    masses = _masses(smoothing, logits.shape[-1])
    return cast(Tensor, _LabelSmoothedCrossEntropy.apply(logits, classes, *masses, ignore_index))  # type: ignore[no-untyped-call]  # torch's


class _LabelSmoothedCrossEntropy(torch.autograd.Function):
    """Processes blocks of rows that stay in the cache; the gradient is (Σ_c q(c)) p - q."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, classes: Tensor, at_target: float, elsewhere: float, ignored: int) -> Tensor:
        ctx.save_for_backward(logits, classes)
        ctx.masses = at_target + (logits.shape[-1] - 1) * elsewhere, at_target - elsewhere, elsewhere
        ctx.ignored = ignored
        _, surplus, elsewhere = ctx.masses
        sums = []
        for rows, targets in zip(_row_blocks(logits), _row_blocks(classes), strict=True):
            counts, log_probs = targets != ignored, to_float32(rows).log_softmax(-1)
            at_targets = log_probs.gather(1, targets.where(counts, 0)[:, None])[:, 0]
            sums.append((surplus * at_targets + elsewhere * log_probs.sum(-1)).where(counts, 0).sum())
        return -torch.stack(sums).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, classes = ctx.saved_tensors
        total, surplus, elsewhere = (mass * upstream for mass in ctx.masses)
        gradient = torch.empty_like(logits)
        for rows, targets, gradients in zip(*map(_row_blocks, (logits, classes, gradient)), strict=True):
            counts = targets != ctx.ignored
            at_targets = targets.where(counts, 0)[:, None]
            of_rows = to_float32(rows).softmax(-1).mul_(total).sub_(elsewhere)
            of_rows.scatter_add_(1, at_targets, -surplus.to(of_rows.dtype).expand(at_targets.shape))
            gradients.copy_(of_rows.masked_fill_(~counts[:, None], 0))
        return gradient, None, None, None, None


def _row_blocks(rows: Tensor) -> tuple[Tensor, ...]:
    """Split rows into views that fit into a CPU cache as float32 with some ten thousand classes."""
    return torch.split(rows, 64 if rows.device.type == "cpu" else max(len(rows), 1))


def to_float32(x: Tensor) -> Tensor:
    """Convert half precision to float32; float32 and float64 stay as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _masses(smoothing: LabelSmoothing, num_classes: int) -> tuple[float, float]:
    """Return q at the target, and at each other class."""
    epsilon = smoothing.epsilon
    if smoothing.formula == "torch":
        return 1 - epsilon + epsilon / num_classes, epsilon / num_classes
    others = {"you": num_classes + 1, "annotated": max(num_classes - 1, 1), "fairseq": num_classes}[smoothing.formula]
    return 1 - epsilon, epsilon / others

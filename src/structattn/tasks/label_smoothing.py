"""Label smoothing by four formulas: PyTorch's and those of three published implementations."""

from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from structattn.settings.training import LabelSmoothing


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
            found = to_float32(rows).softmax(-1).mul_(total).sub_(elsewhere)
            found.scatter_add_(1, at_targets, -surplus.to(found.dtype).expand(at_targets.shape))
            gradients.copy_(found.masked_fill_(~counts[:, None], 0))
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

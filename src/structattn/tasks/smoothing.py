"""Label smoothing, as torch and as three public codes have it."""

from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from structattn.settings.training import LabelSmoothing


def label_smoothed_cross_entropy(
    logits: Float[Tensor, "n classes"], classes: Int[Tensor, " n"], smoothing: LabelSmoothing, ignored: int
) -> Float[Tensor, ""]:
    """-Σ_i Σ_c q_i(c) log p_i(c) over the rows i whose class y is not ``ignored``.

    The target distribution q, for C classes:

        formula      at y               elsewhere    total
        torch        1 - ε + ε / C      ε / C        1
        you          1 - ε              ε / (C + 1)  1 - 2 ε / (C + 1)
        annotated    1 - ε              ε / (C - 1)  1
        fairseq      1 - ε              ε / C        1 - ε / C

    The last three count one class more, <pad>, which gets nothing from the first two of them and has no logit here. Two
    of the codes use a divergence instead, which differs by a constant. Computed in float32 or better; can be
    differentiated once. Cost: two looks at ``logits``, and the memory of their gradient alone.
    """
    masses = _masses(smoothing, logits.shape[-1])
    return cast(Tensor, _LabelSmoothedCrossEntropy.apply(logits, classes, *masses, ignored))  # type: ignore[no-untyped-call]  # torch's


class _LabelSmoothedCrossEntropy(torch.autograd.Function):
    """Some rows at a time, which stay in the cache meanwhile; the slope is (Σ_c q(c)) p - q."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, classes: Tensor, at_target: float, elsewhere: float, ignored: int) -> Tensor:
        ctx.save_for_backward(logits, classes)
        ctx.masses = at_target + (logits.shape[-1] - 1) * elsewhere, at_target - elsewhere, elsewhere
        ctx.ignored = ignored
        _, surplus, elsewhere = ctx.masses
        nats = []
        for rows, targets in zip(_in_parts(logits), _in_parts(classes), strict=True):
            counts, log_p = targets != ignored, _in_float32(rows).log_softmax(-1)
            at_targets = log_p.gather(1, targets.where(counts, 0)[:, None])[:, 0]
            nats.append((surplus * at_targets + elsewhere * log_p.sum(-1)).where(counts, 0).sum())
        return -torch.stack(nats).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, classes = ctx.saved_tensors
        total, surplus, elsewhere = (mass * upstream for mass in ctx.masses)
        gradient = torch.empty_like(logits)
        for rows, targets, slopes in zip(*map(_in_parts, (logits, classes, gradient)), strict=True):
            counts = targets != ctx.ignored
            at_targets = targets.where(counts, 0)[:, None]
            found = _in_float32(rows).softmax(-1).mul_(total).sub_(elsewhere)
            found.scatter_add_(1, at_targets, -surplus.to(found.dtype).expand(at_targets.shape))
            slopes.copy_(found.masked_fill_(~counts[:, None], 0))
        return gradient, None, None, None, None


def _in_parts(rows: Tensor) -> tuple[Tensor, ...]:
    """Views of rows that fit into a processor's cache, as float32 of some ten thousand classes."""
    return torch.split(rows, 64 if rows.device.type == "cpu" else max(len(rows), 1))


def _in_float32(rows: Tensor) -> Tensor:
    return rows.to(torch.promote_types(rows.dtype, torch.float32))


def _masses(smoothing: LabelSmoothing, count: int) -> tuple[float, float]:
    """Q at the target, and at each other class."""
    epsilon = smoothing.epsilon
    if smoothing.formula == "torch":
        return 1 - epsilon + epsilon / count, epsilon / count
    others = {"you": count + 1, "annotated": max(count - 1, 1), "fairseq": count}[smoothing.formula]
    return 1 - epsilon, epsilon / others

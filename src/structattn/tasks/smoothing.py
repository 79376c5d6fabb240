"""Label smoothing, as torch and as three public codes have it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.settings.training import LabelSmoothing


def smoothed_nats(
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
    of the codes use a divergence instead, which differs by a constant. Computed in float32 or better.
    """
    chosen = classes != ignored
    logits = logits[chosen].to(torch.promote_types(logits.dtype, torch.float32))
    log_p = torch.log_softmax(logits, -1)
    at_target, elsewhere = _masses(smoothing, logits.shape[-1])
    return -((at_target - elsewhere) * log_p.gather(1, classes[chosen][:, None]).sum() + elsewhere * log_p.sum())


def _masses(smoothing: LabelSmoothing, count: int) -> tuple[float, float]:
    """Q at the target, and at each other class."""
    epsilon = smoothing.epsilon
    if smoothing.formula == "torch":
        return 1 - epsilon + epsilon / count, epsilon / count
    others = {"you": count + 1, "annotated": max(count - 1, 1), "fairseq": count}[smoothing.formula]
    return 1 - epsilon, epsilon / others

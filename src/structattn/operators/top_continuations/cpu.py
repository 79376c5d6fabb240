"""The best continuations of a beam by the compiled kernel."""

import torch
from torch import Tensor

from structattn.operators.common.kernels import contiguous_rows, kernel_for
from structattn.operators.common.registration import register


def _empty(logits: Tensor, log_probs: Tensor, required: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
    return logits.new_empty(len(logits), k), logits.new_empty(len(logits), k, dtype=torch.int64)


@register("top_continuations", fake=_empty)
def top_continuations_cpu(logits: Tensor, log_probs: Tensor, required: Tensor | None, k: int) -> tuple[Tensor, Tensor]:
    """Scores and indices (B, k), not differentiable.

    Args:
        logits: (B, W, C), float32 or float64.
        log_probs: (B, W), of the same dtype.
        required: (B,) int64, the class that must follow, negative where any may.
        k: at most W * C.

    Raises:
        ValueError: a logit or a log-probability is NaN or +inf.
    """
    batch, beam, classes = logits.shape
    scores, indices = _empty(logits, log_probs, required, k)
    rows, log_probs = contiguous_rows(logits.flatten(0, 1)), log_probs.contiguous()
    required = None if required is None else required.contiguous()
    kernel_for("top_continuations", logits.dtype)(
        rows.data_ptr(),
        rows.stride(0),
        log_probs.data_ptr(),
        0 if required is None else required.data_ptr(),
        scores.data_ptr(),
        indices.data_ptr(),
        batch,
        beam,
        classes,
        k,
        torch.get_num_threads(),
    )
    return scores, indices

"""The best one-token continuations of the hypotheses of a beam."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.operators.common.checks import require_shape
from structattn.operators.common.kernels import has_kernel
from structattn.operators.top_continuations.cpu import top_continuations_cpu
from structattn.operators.top_continuations.reference import top_continuations_reference

__all__ = ["top_continuations"]


def top_continuations(
    logits: Float[Tensor, "batch beam classes"],
    log_probs: Float[Tensor, "batch beam"],
    k: int,
    required: Int[Tensor, " batch"] | None = None,
) -> tuple[Float[Tensor, "batch k"], Int[Tensor, "batch k"]]:
    """Return the k best continuations of each sentence's hypotheses: score = log p(hypothesis) + log softmax(logits)_c.

    Scores are in the dtype of the logits, at least float32. Among equal scores the lower index comes first. The
    compiled kernel keeps no table of scores; it reads the logits of a hypothesis while they are in the cache.

    Cost: O(W * C) for each sentence.

    Args:
        logits: of the next token, -inf where it is forbidden; W hypotheses of each sentence, C classes.
        log_probs: of the hypotheses so far; -inf marks an empty slot.
        k: from 1 to W * C.
        required: the only class that may follow in each sentence, negative where any may; None: any in all.

    Returns:
        Scores in descending order, and indices w * C + c. A score of -inf means that there are fewer continuations;
        its index is undefined, within 0 to W * C - 1. Neither has a gradient.

    Raises:
        ValueError: a logit or a log-probability is NaN or +inf, or a shape or k does not fit.
    """
    require_shape("logits", logits, (None, None, None), "(B, W, C)")
    batch, beam, classes = logits.shape
    require_shape("log_probs", log_probs, (batch, beam), "(B, W), as the logits")
    if not 1 <= k <= beam * classes:
        raise ValueError(f"k={k}; expected 1 to {beam * classes}, the number of continuations")
    if required is not None:
        require_shape("required", required, (batch,), "(B,), one class for each sentence")
        required = required.long()
    logits, log_probs = logits.detach(), log_probs.detach()
    if not (logits.device.type == "cpu" and has_kernel("top_continuations_float32")):
        return top_continuations_reference(logits, log_probs, k, required)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return top_continuations_cpu(logits, log_probs.to(logits.dtype), required, k)

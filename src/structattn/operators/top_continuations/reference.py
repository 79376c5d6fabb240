"""Log-probabilities from logits, a top-k whose order is deterministic, and the definition of ``top_continuations``."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def with_log_normalizer(
    logits: Float[Tensor, "*batch classes"],
) -> tuple[Float[Tensor, "*batch classes"], Float[Tensor, "*batch"]]:
    """Return the logits in at least float32, and log sum_c exp(logits_c).

    Half precision is not enough for sums of log-probabilities over a text. Where all classes are forbidden, the
    normalizer is 0, so that -inf - 0 stays -inf.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    total = logits.logsumexp(-1)
    return logits, total.masked_fill(total == -math.inf, 0)


def check_log_normalizer(log_normalizer: Float[Tensor, "*batch"]) -> None:
    """Check that logits are finite or -inf, given log sum_c exp(logits_c).

    Raises:
        ValueError: a logit is NaN or +inf.
    """
    if not bool((log_normalizer < math.inf).all()):
        raise ValueError("the model returned NaN or inf logits; expected finite numbers or -inf")


def stable_topk(
    scores: Float[Tensor, "batch choices"], k: int
) -> tuple[Float[Tensor, "batch k"], Int[Tensor, "batch k"]]:
    """Return the k greatest scores of each row and their indices; among equal scores, the lower index comes first.

    The result is the beginning of a stable descending sort. ``torch.topk`` leaves the order of equal scores open, so
    it is used only where no equal scores compete for the last rank. Which of several scores of -inf are returned is
    undefined.

    Cost: O(choices) for each row; that of a sort where equal scores compete.

    Raises:
        ValueError: a score is NaN.
    """
    values, indices = scores.topk(min(k + 1, scores.shape[1]))
    if bool(values.isnan().any()):
        raise ValueError("scores holds NaN; expected numbers")
    last, next_one = values[:, k - 1 : k], values[:, k : k + 1]
    if bool(((last == next_one) & (last > -math.inf)).any()):
        values, indices = scores.sort(dim=1, descending=True, stable=True)
        return values[:, :k], indices[:, :k]
    indices = indices[:, :k].sort(dim=1).values
    values, order = scores.gather(1, indices).sort(dim=1, descending=True, stable=True)
    return values, indices.gather(1, order)


def top_continuations_reference(
    logits: Float[Tensor, "batch beam classes"],
    log_probs: Float[Tensor, "batch beam"],
    k: int,
    required: Int[Tensor, " batch"] | None = None,
) -> tuple[Float[Tensor, "batch k"], Int[Tensor, "batch k"]]:
    """The definition of ``top_continuations``: it computes the scores of all continuations, and sorts them."""
    if not bool((log_probs < math.inf).all()):
        raise ValueError("log_probs holds NaN or inf; expected finite numbers or -inf")
    logits, log_normalizer = with_log_normalizer(logits)
    check_log_normalizer(log_normalizer)
    scores = logits + (log_probs.to(logits.dtype) - log_normalizer)[:, :, None]
    if required is not None:
        classes = torch.arange(scores.shape[2], device=scores.device)
        possible = (required[:, None] < 0) | (classes == required[:, None])
        scores = scores.masked_fill(~possible[:, None], -math.inf)
    return stable_topk(scores.flatten(1), k)

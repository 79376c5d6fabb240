"""Log-probabilities from logits, and the best one-token continuations of the hypotheses of a beam."""

import math

import torch
from torch import Tensor

from structattn.support.shapes import Bool, Float, Int
from structattn.support.special_tokens import class_of, id_of

_NUMBERS_AT_ONCE = 80_000  # of a normalizer, so that what is computed in between stays in the cache
_CLASSES_OF_BLOCK = 50  # of which only the maximum is compared, if it is not among the best


def with_log_normalizer(
    logits: Float[Tensor, "*batch classes"],
) -> tuple[Float[Tensor, "*batch classes"], Float[Tensor, "*batch"]]:
    """Return the logits in at least float32, and log sum_c exp(logits_c).

    Half precision is not enough for sums of log-probabilities over a text. Where all classes are forbidden, the
    normalizer is 0, so that -inf - 0 stays -inf.

    Raises:
        ValueError: a logit is NaN or +inf.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if logits.is_cpu and logits.dim() > 1 and logits.numel() > _NUMBERS_AT_ONCE:
        rows, count = logits.flatten(0, -2), max(1, _NUMBERS_AT_ONCE // logits.shape[-1])
        total = torch.cat([some.logsumexp(-1) for some in torch.split(rows, count)]).view(logits.shape[:-1])
    else:
        total = logits.logsumexp(-1)
    if not bool((total < math.inf).all()):
        raise ValueError("the model returned NaN or inf logits; expected finite numbers or -inf")
    return logits, total.masked_fill(total == -math.inf, 0)


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


def top_continuations(
    logits: Float[Tensor, "batch beam classes"],
    log_probs: Float[Tensor, "batch beam"],
    k: int,
    required: Int[Tensor, " batch"] | None = None,
    forbidden: Bool[Tensor, "batch beam classes"] | None = None,
) -> tuple[Float[Tensor, "batch k"], Int[Tensor, "batch k"]]:
    """Return the k best continuations of each sentence's hypotheses: score = log p(hypothesis) + log softmax(logits)_c.

    Scores are in the dtype of the logits, at least float32. Among equal scores the lower index comes first.

    Cost: O(W * C) for each sentence.

    Args:
        logits: of the next token, -inf where it is forbidden; W hypotheses of each sentence, C classes.
        log_probs: of the hypotheses so far; -inf marks an empty slot.
        k: from 1 to W * C.
        required: the only class that may follow in each sentence, negative where any may; None: any in all.
        forbidden: classes that may not follow, although they have a share of the probability; None: any may.

    Returns:
        Scores in descending order, and indices w * C + c. A score of -inf means that there are fewer continuations;
        its index is undefined, within 0 to W * C - 1.

    Raises:
        ValueError: a logit or a log-probability is NaN or +inf.
    """
    if not bool((log_probs < math.inf).all()):
        raise ValueError("log_probs holds NaN or inf; expected finite numbers or -inf")
    (_, beam, num_classes), (logits, log_normalizer) = logits.shape, with_log_normalizer(logits)
    offsets = log_probs.to(logits.dtype) - log_normalizer
    logits = logits if forbidden is None else logits.masked_fill(forbidden, -math.inf)
    if required is None and k < beam * (num_classes // _CLASSES_OF_BLOCK):
        best = _best_of_blocks(logits, offsets, k)
        if best is not None:
            return best
    scores = logits + offsets[:, :, None]
    if required is not None:
        possible = (required[:, None] < 0) | (torch.arange(num_classes, device=logits.device) == required[:, None])
        scores = scores.masked_fill(~possible[:, None], -math.inf)
    return stable_topk(scores.flatten(1), k)


def _best_of_blocks(logits: Tensor, offsets: Tensor, k: int) -> tuple[Tensor, Tensor] | None:
    """Return the k greatest sums of logits and offsets, which are in the k blocks of classes with the greatest maxima.

    None where equal maxima compete for the last rank. There are more than k blocks.
    """
    (_, beam, classes), size = logits.shape, _CLASSES_OF_BLOCK
    blocks = classes // size  # block j has classes j, j + blocks, ..; the last classes, fewer than a block, are in none
    in_blocks = logits[:, :, : blocks * size].unflatten(2, (size, blocks))  # type: ignore[no-untyped-call]  # torch's
    maxima = in_blocks.amax(2) + offsets[:, :, None]
    best, chosen = maxima.flatten(1).topk(k + 1)
    if not bool((best[:, k - 1] > best[:, k]).all()):
        return None
    first = (chosen // blocks * classes + chosen % blocks)[:, :k, None]
    of_blocks = first + torch.arange(0, blocks * size, blocks, device=first.device)
    of_none = torch.arange(beam * classes, device=first.device).view(beam, classes)[:, blocks * size :]
    indices = torch.cat([of_blocks.flatten(1), of_none.flatten().expand(len(logits), -1)], 1)
    scores = logits.flatten(1).gather(1, indices) + offsets.gather(1, indices // classes)
    values, order = scores.topk(k + 1)
    if not bool((values[:, k - 1] > values[:, k]).all()):
        return None
    indices, by_index = indices.gather(1, order[:, :k]).sort(1)  # equal scores in the order of their indices
    values, order = values[:, :k].gather(1, by_index).sort(dim=1, descending=True, stable=True)
    return values, indices.gather(1, order)


def forced_classes(forced: Int[Tensor, " open"], num_classes: int) -> Int[Tensor, " open"]:
    """Return the class of a token that must follow in each sentence, negative where any may, for <pad>.

    Raises:
        ValueError: a token is not in the vocabulary of the model.
    """
    classes = class_of(forced)
    largest = id_of(int(classes.max()))
    if largest >= id_of(num_classes):
        raise ValueError(
            f"a prefix has token {largest}; the vocabulary has {id_of(num_classes)}, expected one below that"
        )
    return classes

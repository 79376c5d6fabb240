"""Greedy search."""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor

from structattn.decoding.decode_loop import one_by_one
from structattn.decoding.hypothesis import Hypothesis
from structattn.decoding.limits import Limits
from structattn.decoding.stepper import Start, Stepper


def greedy(
    model: Stepper, start: Start, limits: Limits, prefixes: Sequence[Sequence[int]] | None = None
) -> list[Hypothesis]:
    """The likeliest token at each step, the one of lower id among equals.

    Args:
        model: what predicts, in evaluation mode.
        start: the sentences, from ``translation`` or ``continuation``.
        limits: the most tokens of each text, <eos> and forced ones counted; one number is everyone's.
        prefixes: what each text must begin with, without <bos>.

    Returns:
        One hypothesis for each sentence; unfinished where the limit cut it. The score is the log-probability.

    Raises:
        ValueError: the model gives NaN, or limits or prefixes do not fit.
    """
    return one_by_one(model, start, lambda logits, _: likeliest(logits), limits, prefixes)


def likeliest(logits: Float[Tensor, "batch classes"]) -> Int[Tensor, " batch"]:
    """The class of the greatest logit, the first of equals."""
    greatest, chosen = logits.max(1)
    if bool(greatest.isnan().any()):
        raise ValueError("the model gave NaN; there is no best among its predictions")
    return chosen

"""Rank the checkpoints of a run by the validation scores in its event log."""

from collections.abc import Mapping, Sequence
from typing import Any


def selection_score(cross_entropy: float, bleu: float | None) -> float:
    """Return the score for model selection, lower is better: negative BLEU if given, otherwise the cross-entropy."""
    return cross_entropy if bleu is None else -bleu


def best_updates(validations: Sequence[Mapping[str, Any]], count: int, newest: int | None = None) -> list[int]:
    """Return the updates with the best validation scores, best first; ties go to the earlier update.

    Args:
        validations: the validation events of a run.
        count: maximum number of updates to return.
        newest: ignore updates after this one; None: no limit.
    """
    scores = {event["update"]: selection_score(event["cross_entropy"], event.get("bleu")) for event in validations}
    candidates = [update for update in scores if newest is None or update <= newest]
    return sorted(candidates, key=lambda update: (scores[update], update))[:count]

"""Which updates of a run were best, by the validations in its event log."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from structattn.training.events import events_of


def best_updates(events: Path, count: int, newest: int | None = None) -> list[int]:
    """The updates after which validation went best, the best first, the earlier of equals.

    Args:
        events: the event log.
        count: how many, at most.
        newest: later ones do not count; None: all do.

    Raises:
        CheckpointError: a line of the log is damaged.
    """
    scores = {event["update"]: _score(event) for event in events_of(events, ["validation"])}
    there = [update for update in scores if newest is None or update <= newest]
    return sorted(there, key=lambda update: (scores[update], update))[:count]


def _score(validation: Mapping[str, Any]) -> float:
    """What ``progress.score_of`` made of it, read from the log: BLEU is there only where the run is selected by it."""
    return -float(validation["bleu"]) if "bleu" in validation else float(validation["cross_entropy"])

"""Which updates of a run were best, by the validations in its event log."""

from pathlib import Path

from structattn.training.events import events_of
from structattn.training.progress import selecting_score


def best_updates(events: Path, count: int, newest: int | None = None) -> list[int]:
    """The updates after which validation went best, the best first, the earlier of equals.

    Args:
        events: the event log.
        count: how many, at most.
        newest: later ones do not count; None: all do.

    Raises:
        CheckpointError: a line of the log is damaged.
    """
    scores = {
        event["update"]: selecting_score(event["cross_entropy"], event.get("bleu"))
        for event in events_of(events, ["validation"])
    }
    there = [update for update in scores if newest is None or update <= newest]
    return sorted(there, key=lambda update: (scores[update], update))[:count]

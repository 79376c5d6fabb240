"""Which updates of a run were best, by the validations in its event log."""

from pathlib import Path

from structattn.runs.logs import events_of


def selection_score(cross_entropy: float, bleu: float | None) -> float:
    """What models are selected by, the smaller the better: BLEU with its sign turned where there is one, else nats."""
    return cross_entropy if bleu is None else -bleu


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
        event["update"]: selection_score(event["cross_entropy"], event.get("bleu"))
        for event in events_of(events, ["validation"])
    }
    there = [update for update in scores if newest is None or update <= newest]
    return sorted(there, key=lambda update: (scores[update], update))[:count]

"""How a run ended, in one value."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from structattn.runs.state import Progress

END_FIELDS = ("reason", "update", "epoch", "best_update", "best_cross_entropy")


@dataclass(frozen=True)
class TrainingSummary:
    """How a run ended.

    Args:
        reason: ``epochs``, ``updates``, ``early_stopping`` or ``time``.
        update: completed updates.
        epoch: completed epochs.
        best_update: the update of the best validation.
        best_cross_entropy: its score, nats per symbol; None where BLEU was what counted.
        best_bleu: its score where that was what counted.
        resumed_from: the update at which this start went on; None for a new run.
        already_finished: the run had ended before; nothing was done.
    """

    reason: str
    update: int
    epoch: int
    best_update: int | None
    best_cross_entropy: float | None
    resumed_from: int | None = None
    already_finished: bool = False
    best_bleu: float | None = None

    def end_values(self) -> dict[str, Any]:
        """What the event log says of the end; nothing in it depends on interruptions."""
        values = asdict(self)
        bleu = {} if self.best_bleu is None else {"best_bleu": self.best_bleu}
        return {field: values[field] for field in END_FIELDS} | bleu


def summary_of(
    reason: str, progress: Progress, resumed_from: int | None, select_by: Literal["cross_entropy", "bleu"]
) -> TrainingSummary:
    """The summary of a run that ends here."""
    score = progress.best_score
    by_bleu = score is not None and select_by == "bleu"
    return TrainingSummary(
        reason,
        progress.update,
        progress.epoch,
        progress.best_update,
        best_cross_entropy=None if by_bleu else score,
        resumed_from=resumed_from,
        best_bleu=-score if score is not None and by_bleu else None,
    )


def summary_of_event(end: dict[str, Any]) -> TrainingSummary:
    """The summary of a run that had ended before, from the last line of its event log."""
    values: dict[str, Any] = {field: end.get(field) for field in END_FIELDS}
    return TrainingSummary(**values, already_finished=True, best_bleu=end.get("best_bleu"))

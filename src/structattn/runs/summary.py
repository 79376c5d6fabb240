"""Summary of a finished run."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from structattn.runs.state import Progress

PAUSED = "paused"
"""The reason of a run that has not ended, but was paused after a number of epochs or updates."""

END_FIELDS = ("reason", "update", "epoch", "best_update", "best_cross_entropy")


@dataclass(frozen=True)
class TrainingSummary:
    """Result of a training run.

    Args:
        reason: why it ended: ``epochs``, ``updates``, ``early_stopping`` or ``time``; ``paused`` if it has not ended.
        update: number of completed updates.
        epoch: number of completed epochs.
        best_update: update of the best validation.
        best_cross_entropy: best validation cross-entropy in nats per symbol; None if models are selected by BLEU.
        resumed_from: update from which this start resumed; None for a new run.
        already_finished: the run was finished before this start; nothing was trained.
        best_bleu: best validation BLEU if models are selected by BLEU.
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
        """Return the fields of the end event; they do not depend on interruptions."""
        values = asdict(self)
        bleu = {} if self.best_bleu is None else {"best_bleu": self.best_bleu}
        return {field: values[field] for field in END_FIELDS} | bleu


def summary_of(
    reason: str, progress: Progress, resumed_from: int | None, select_by: Literal["cross_entropy", "bleu"]
) -> TrainingSummary:
    """Return the summary of a run that has just ended."""
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
    """Return the summary of a run that was already finished, from its end event."""
    values: dict[str, Any] = {field: end.get(field) for field in END_FIELDS}
    return TrainingSummary(**values, already_finished=True, best_bleu=end.get("best_bleu"))

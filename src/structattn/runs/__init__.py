"""Runs on disk: run folder, checkpoints, training state, event log and run card.

- ``RunFolder``: the paths of a run folder; ``TrainingSummary``: how a run ended.
- ``CheckpointStore``: writes, finds and prunes checkpoints; ``TrainingState``: what a checkpoint holds.
- ``EventLog``, ``events_of``: the event log, JSON lines without a clock.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.runs.checkpoint import TrainingState
    from structattn.runs.folder import RunFolder
    from structattn.runs.logs import EventLog, events_of
    from structattn.runs.metadata import TrainingSummary
    from structattn.runs.store import CheckpointStore

__all__ = ["CheckpointStore", "EventLog", "RunFolder", "TrainingState", "TrainingSummary", "events_of"]

__getattr__, __dir__ = lazy_exports(__name__)

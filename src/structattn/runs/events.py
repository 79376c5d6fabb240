"""The events of a run, verified with the digest in its run card or in its newest checkpoint."""

from collections.abc import Sequence
from typing import Any

from structattn.runs.checkpoint import read_manifest, read_state_file
from structattn.runs.folder import RunFolder
from structattn.runs.logs import digest_of_prefix, events_of
from structattn.runs.state import LogPrefix
from structattn.runs.store import checkpoint_path, checkpoint_updates


def verified_events(run: RunFolder, kinds: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the events of a run, of a finished one without the end event; see ``events_of``.

    The log is compared with its digest in the run card, if the run is finished, else with that in the newest
    checkpoint; later events of a run in progress have no digest yet.

    Raises:
        CheckpointError: the log has changed, or the newest checkpoint of a run in progress is damaged.
        DataError: the log or the run card cannot be read.
    """
    finished = run.finished_log() if run.card.exists() else None
    recorded = finished or _log_of_newest_checkpoint(run)
    if recorded is not None:
        digest_of_prefix(run.events, recorded)
    return events_of(run.events, kinds, None if finished is None else finished.length)


def _log_of_newest_checkpoint(run: RunFolder) -> LogPrefix | None:
    updates = checkpoint_updates(run.checkpoints)
    if not updates:
        return None
    folder = checkpoint_path(run.checkpoints, max(updates))
    return read_state_file(folder, read_manifest(folder)).event_log

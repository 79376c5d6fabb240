"""Replay the event log of a run into a tracker, and follow it while the run goes on."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from structattn.interop.trackers.trackers import MLflow, RunDescription, TensorBoard, Tracker, WeightsAndBiases
from structattn.runs.folder import RunFolder, existing_run, flatten
from structattn.runs.logs import EventReader, digest_of_prefix
from structattn.support.errors import UsageError
from structattn.support.files import naming_target

TRACKERS: Final[Mapping[str, Callable[[RunDescription], Tracker]]] = MappingProxyType(
    {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WeightsAndBiases}
)
"""Name -> the class that opens a run in a tracker."""

KINDS: Final = ("train", "validation")
END: Final = "end"
SECONDS_BETWEEN_READS: Final = 1.0


def log_run(
    run_dir: Path,
    tracker: str,
    place: Path | None = None,
    *,
    follow: bool = False,
    advance: Callable[[int], object] = lambda count: None,
) -> int:
    """Replay the training and validation events of a run, each update once, and return how many were new.

    Args:
        run_dir: the run folder.
        tracker: one of ``TRACKERS``.
        place: the folder of the tracker's files; None: a folder in the run folder with the tracker's name. That of
            TensorBoard is written anew.
        follow: go on until the run has ended. Events that a resumed run writes again are skipped.
        advance: called with the number of events that were sent since.

    Raises:
        StructattnError: the folder is not a run folder.
        UsageError: there is no such tracker, or its library is not installed.
        DataError: the event log or the settings are damaged.
        CheckpointError: the event log of a finished run has changed.
        OSError: the disk is full, or the like.
    """
    if tracker not in TRACKERS:
        raise UsageError(f"tracker {tracker!r} is not one of {', '.join(TRACKERS)}")
    folder = existing_run(run_dir)
    description = _description(folder, place or run_dir / tracker)
    length = None if follow else _length_of_finished_log(folder)
    batches = _batches(EventReader(folder.events, length), follow)
    with naming_target(description.place):
        return _replay(batches, TRACKERS[tracker](description), length is not None, advance)


def _length_of_finished_log(folder: RunFolder) -> int | None:
    """Check the digest of a finished run's log and return its length without the end; None for one in progress."""
    finished = folder.finished_log() if folder.card.exists() else None
    if finished is None:
        return None
    digest_of_prefix(folder.events, finished)
    return finished.length


def _replay(
    batches: Iterator[list[dict[str, Any]]], opened: Tracker, finished: bool, advance: Callable[[int], object]
) -> int:
    count = 0
    try:
        seen = dict(opened.last_steps())
        for events in batches:
            finished = finished or any(event["event"] == END for event in events)
            new = list(new_events(events, seen))
            for kind, update, values in new:
                opened.log(kind, update, values)
            opened.flush()
            advance(len(new))
            count += len(new)
    finally:
        opened.close(finished)
    return count


def _batches(reader: EventReader, follow: bool) -> Iterator[list[dict[str, Any]]]:
    """Yield the events so far; to follow, also later ones, until the run has ended."""
    while True:
        events = reader.read()
        yield events
        if not follow or any(event["event"] == END for event in events):
            return
        time.sleep(SECONDS_BETWEEN_READS)


def new_events(
    events: Iterable[Mapping[str, Any]], seen: dict[str, int]
) -> Iterator[tuple[str, int, dict[str, float]]]:
    """Yield kind, update and numbers of the events after those in ``seen``, which maps kinds to their last updates."""
    for event in events:
        kind, update = event["event"], event.get("update")
        if kind in KINDS and isinstance(update, int) and update > seen.get(kind, -1):
            seen[kind] = update
            yield kind, update, _numbers(event)


def _numbers(event: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in event.items()
        if name not in ("event", "update") and isinstance(value, int | float) and not isinstance(value, bool)
    }


def _description(folder: RunFolder, place: Path) -> RunDescription:
    card = folder.read_card()
    identity = card.get("id") or card["settings_digest"]  # older runs have no id
    values = flatten(folder.read_settings().model_dump(mode="json"))
    return RunDescription(folder.path.resolve().name, identity, values, folder.read_settings_text().decode(), place)

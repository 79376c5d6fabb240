"""Replay of event logs into trackers: TensorBoard, MLflow and Weights & Biases."""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from structattn.runs.folder import RunFolder, existing_run, flatten
from structattn.runs.logs import EventReader, digest_of_prefix
from structattn.support.errors import UsageError
from structattn.support.files import create_folder_unflushed, naming_target, open_unflushed, remove_file_unflushed
from structattn.support.imports import require_modules
from structattn.support.progress import Advance, show_nothing


@dataclass(frozen=True)
class RunDescription:
    """A run, as trackers show it.

    Args:
        identity: distinguishes it from all other runs, wherever it is and however far it is extended.
        place: the folder of the tracker's files.
    """

    name: str
    identity: str
    settings: Mapping[str, Any]
    settings_text: str
    place: Path


class Tracker(Protocol):
    """A run in a tracker, open for more events; created from a ``RunDescription``.

    Raises:
        UsageError: the tracker's library is not installed.
    """

    def last_steps(self) -> Mapping[str, int]:
        """Return the last step of each kind of event that the tracker already has."""
        return {}

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Add the values of an event, whose names become ``KIND/NAME``."""

    def flush(self) -> None:
        """Make what was logged visible."""

    def close(self, finished: bool) -> None:
        """Close the tracker; ``finished``: the run has ended."""


_EXPERIMENT, _TAG, _LAST = "structattn", "structattn.identity", "structattn.last."
_AT_ONCE: Final = 100  # the most parameters that a request may have


class MLflow(Tracker):
    """A run that is found again by its identity, so that a later replay adds what is new.

    Its place is used if the environment variable ``MLFLOW_TRACKING_URI`` names no server.
    """

    def __init__(self, run: RunDescription) -> None:
        require_modules("mlflow", "mlflow")
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # for folders, newer releases ask for consent
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        library: Any = import_module("mlflow")
        self._entities: Any = import_module("mlflow.entities")
        uri = os.environ.get("MLFLOW_TRACKING_URI") or run.place.absolute().as_uri()
        self._client = library.MlflowClient(tracking_uri=uri)
        found = self._client.get_experiment_by_name(_EXPERIMENT)
        experiment = self._client.create_experiment(_EXPERIMENT) if found is None else found.experiment_id
        runs = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{run.identity}'")
        self._run = runs[0] if runs else self._create(experiment, run)
        self._pending: list[Any] = []
        self._last: dict[str, int] = {}

    def _create(self, experiment: str, run: RunDescription) -> Any:
        created = self._client.create_run(experiment, tags={_TAG: run.identity}, run_name=run.name)
        parameters = [self._entities.Param(name, str(value)[:500]) for name, value in run.settings.items()]
        for first in range(0, len(parameters), _AT_ONCE):
            self._client.log_batch(created.info.run_id, params=parameters[first : first + _AT_ONCE])
        return created

    def last_steps(self) -> Mapping[str, int]:
        """Return the last steps of the run."""
        tags = self._run.data.tags
        return {name.removeprefix(_LAST): int(value) for name, value in tags.items() if name.startswith(_LAST)}

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Add metrics."""
        now = int(time.time() * 1000)
        self._pending += [self._entities.Metric(f"{kind}/{name}", value, now, step) for name, value in values.items()]
        self._last[kind] = step

    def flush(self) -> None:
        """Send the metrics, then their last steps."""
        pending, last, self._pending, self._last = self._pending, self._last, [], {}
        for first in range(0, len(pending), _AT_ONCE):
            self._client.log_batch(self._run.info.run_id, metrics=pending[first : first + _AT_ONCE])
        for kind, step in last.items():
            self._client.set_tag(self._run.info.run_id, f"{_LAST}{kind}", str(step))

    def close(self, finished: bool) -> None:
        """Send the rest; the run is finished in MLflow if it has ended."""
        self.flush()
        self._client.set_terminated(self._run.info.run_id, "FINISHED" if finished else "KILLED")


_EVENTS: Final = "events.out.tfevents."  # by which TensorBoard finds them


class TensorBoard(Tracker):
    """An event file, which begins anew with each replay; TensorBoard takes those of a folder for one run.

    Raises:
        UsageError: the folder has an event file of another run.
    """

    def __init__(self, run: RunDescription) -> None:
        require_modules("tensorboard", "tensorboard")
        create_folder_unflushed(run.place)
        own = f".{run.identity[:12]}"
        earlier = sorted(run.place.glob(f"{_EVENTS}*"))
        for path in earlier:
            if path.suffix != own:
                raise UsageError(f"{path}: has the events of another run, or of an earlier version; remove it")
        for path in earlier:
            remove_file_unflushed(path)
        self._events: Any = import_module("tensorboard.compat.proto.event_pb2")
        self._summaries: Any = import_module("torch.utils.tensorboard.summary")
        writers: Any = import_module("tensorboard.summary.writer.record_writer")  # that of torch writes in a thread
        self._writer = writers.RecordWriter(open_unflushed(run.place / f"{_EVENTS}{int(time.time())}{own}"))
        self._add(file_version="brain.Event:2")
        indented = "".join(f"    {line}\n" for line in run.settings_text.splitlines())
        self._add(step=0, summary=self._summaries.text("settings", indented))

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Add scalars."""
        for name, value in values.items():
            self._add(step=step, summary=self._summaries.scalar(f"{kind}/{name}", value))

    def flush(self) -> None:
        """Write the scalars to the file."""
        self._writer.flush()

    def close(self, finished: bool) -> None:
        """Close the file."""
        self._writer.close()

    def _add(self, **fields: Any) -> None:
        self._writer.write(self._events.Event(wall_time=time.time(), **fields).SerializeToString())


class WeightsAndBiases(Tracker):
    """A run with an identifier of its own; ``wandb sync`` uploads one that was logged offline.

    Each replay writes all events: the server drops the steps that it has of the same identifier. The environment
    variables ``WANDB_MODE``, ``WANDB_PROJECT`` and so on count.
    """

    def __init__(self, run: RunDescription) -> None:
        require_modules("wandb", "wandb")
        create_folder_unflushed(run.place)
        logging.raiseExceptions = False  # the library's own log may not fit on the disk, either
        self._library: Any = import_module("wandb")
        self._run = self._library.init(
            project=os.environ.get("WANDB_PROJECT", "structattn"),
            dir=str(run.place),
            mode=os.environ.get("WANDB_MODE", "offline"),
            id=run.identity[:16],
            name=run.name,
            resume="allow" if os.environ.get("WANDB_MODE") == "online" else None,
            config=dict(run.settings),
            settings=self._library.Settings(silent=True, console="off"),
        )

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Add the values to the history."""
        self._run.log({f"{kind}/{name}": value for name, value in values.items()}, step=step)

    def close(self, finished: bool) -> None:
        """Finish the run, and wait until its file is written; other runs of this process are finished, too."""
        self._run.finish()
        self._library.teardown()  # `finish` returns before the library's service has written the file
        logging.raiseExceptions = True


TRACKERS: Final[Mapping[str, Callable[[RunDescription], Tracker]]] = MappingProxyType(
    {"tensorboard": TensorBoard, "mlflow": MLflow, "wandb": WeightsAndBiases}
)
"""Name -> the class that opens a run in a tracker."""

KINDS: Final = ("train", "validation")
END: Final = "end"
SECONDS_BETWEEN_READS: Final = 1.0


def log_run(
    run_dir: str | PathLike[str],
    tracker: str,
    place: str | PathLike[str] | None = None,
    *,
    follow: bool = False,
    advance: Advance = show_nothing,
) -> int:
    """Replay the training and validation events of a run, each update once, and return how many were new.

    Args:
        run_dir: the run folder.
        tracker: one of ``TRACKERS``.
        place: the folder of the tracker's files; None: a folder in the run folder with the tracker's name. The
            events of this run in a folder of TensorBoard are written anew; all else in it stays.
        follow: go on until the run has ended. Events that a resumed run writes again are skipped.
        advance: called with the number of events that were sent since.

    Raises:
        StructattnError: the folder is not a run folder.
        UsageError: there is no such tracker, its library is not installed, or the place is a file or has the events of
            another run.
        DataError: the event log or the settings are damaged.
        CheckpointError: the event log of a finished run has changed.
        OSError: the disk is full, or the like.
    """
    if tracker not in TRACKERS:
        raise UsageError(f"tracker {tracker!r} is not one of {', '.join(TRACKERS)}")
    folder = existing_run(Path(run_dir))
    description = _description(folder, folder.path / tracker if place is None else Path(place))
    if description.place.is_file():
        raise UsageError(f"{description.place}: is a file; expected a folder for what {tracker} writes")
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


def _replay(batches: Iterator[list[dict[str, Any]]], opened: Tracker, finished: bool, advance: Advance) -> int:
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

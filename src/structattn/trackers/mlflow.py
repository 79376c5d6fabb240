"""MLflow: a run in an experiment of the tracking server, or of a folder."""

import os
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from structattn.support.imports import require_modules
from structattn.trackers.tracker import RunDescription

_EXPERIMENT, _TAG, _LAST = "structattn", "structattn.identity", "structattn.last."
_AT_ONCE: Final = 100  # the most parameters that a request may have


class MLflow:
    """A run that is found again by its identity, so that a later replay adds what is new.

    Args:
        run: the run; its place is used if the environment variable ``MLFLOW_TRACKING_URI`` names no server.

    Raises:
        UsageError: the library is not installed.
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

"""What a replay needs of a tracker."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class RunDescription:
    """A run, as trackers show it.

    Args:
        name: of the run folder.
        identity: distinguishes it from all other runs: a digest of its path, settings and data.
        settings: dotted path -> value.
        settings_text: the settings as YAML.
        place: the folder of the tracker's files.
    """

    name: str
    identity: str
    settings: Mapping[str, Any]
    settings_text: str
    place: Path


class Tracker(Protocol):
    """A run in a tracker, open for more events; created from a ``RunDescription``."""

    def last_steps(self) -> Mapping[str, int]:
        """Return the last step of each kind of event that the tracker already has."""
        ...

    def log(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Add the values of an event, whose names become ``KIND/NAME``."""
        ...

    def flush(self) -> None:
        """Make what was logged visible."""
        ...

    def close(self, finished: bool) -> None:
        """Close the tracker; ``finished``: the run has ended."""
        ...

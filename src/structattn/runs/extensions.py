"""Extensions of a run: other limits, with which it goes on; recorded in its card."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from structattn.runs.folder import RunFolder, settings_digest
from structattn.settings.run import RunSettings, limits_of, with_limits


@dataclass(frozen=True)
class Extension:
    """A change of the limits of a run.

    Args:
        update: number of updates that the run had completed.
        reason: why the run had ended; None if it was interrupted.
        limits: its limits until then.
        differences: how the run may differ from one that had the new limits from the start; empty if it does not.
    """

    update: int
    reason: str | None
    limits: Mapping[str, Any]
    differences: tuple[str, ...] = ()


def run_digest(run_dir: RunFolder, stored: RunSettings) -> str:
    """Return the settings digest that the checkpoints of a run have.

    Raises:
        DataError: the run card is damaged.
    """
    extensions = _recorded(run_dir) if run_dir.card.exists() else []
    return settings_digest(with_limits(stored, extensions[0]["limits"]) if extensions else stored)


def reason_of_end(run_dir: RunFolder) -> str | None:
    """Return why a run has ended that is about to be extended; None if it was interrupted."""
    if pending := _pending(run_dir):
        return pending[0]["reason"]  # type: ignore[no-any-return]  # JSON
    result: dict[str, Any] = run_dir.read_card()["result"] or {}
    return result.get("reason")


def record_extension(run_dir: RunFolder, settings: RunSettings, extension: Extension) -> None:
    """Record an extension, first in the run card, then in the settings, which make it valid.

    The event log on disk must have no end event any more, which the card would contradict.
    """
    begun = _begun(run_dir)
    run_dir.write_card(run_dir.read_card() | {"extensions": [*begun, asdict(extension)], "result": None})
    run_dir.write_settings(settings)


def drop_pending_extension(run_dir: RunFolder) -> None:
    """Remove an extension from the run card that was interrupted before the settings changed, if there is one."""
    if _pending(run_dir):
        run_dir.write_card(run_dir.read_card() | {"extensions": _begun(run_dir)})


def _recorded(run_dir: RunFolder) -> list[dict[str, Any]]:
    return list(run_dir.read_card().get("extensions", []))


def _pending(run_dir: RunFolder) -> list[dict[str, Any]]:
    """Return the last extension if the settings still have the limits until it."""
    last = _recorded(run_dir)[-1:]
    return last if last and last[0]["limits"] == limits_of(run_dir.read_settings()) else []


def _begun(run_dir: RunFolder) -> list[dict[str, Any]]:
    recorded = _recorded(run_dir)
    return recorded[: len(recorded) - len(_pending(run_dir))]

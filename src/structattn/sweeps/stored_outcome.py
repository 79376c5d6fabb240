"""The file with the results of a single trial.

It has some kilobytes and replaces a run folder with its weights: results can be committed, and a sweep can continue on
another machine.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field

from structattn.runs.folder import RunFolder, changed_fields, differences
from structattn.runs.state import Count
from structattn.settings.budget import Budget, Unit
from structattn.settings.run import resolve_settings
from structattn.support.errors import DataError
from structattn.support.files import create_folder
from structattn.support.json_files import Shape, check_shape, read_json, write_json
from structattn.sweeps.outcome import Outcome
from structattn.sweeps.sources import recorded_sources, require_same_sources
from structattn.sweeps.trials import PREPARE, Trial

_KIND: Final = "trial"
_FORMAT_VERSION: Final = 2
_WITHOUT_DEFAULTS: Final = 1  # an earlier version, whose settings lack those that were defaults


class _BudgetShape(Shape):
    count: Count
    unit: Unit


class _OutcomeShape(Shape):
    """The fields of a file that are read."""

    format_version: Literal[1, 2]
    settings: dict[str, Any]
    prepare: dict[str, Any] | None
    sources: dict[str, str] = Field(default={})
    end: dict[str, Any] | None
    validations: list[dict[str, Any]]
    scores: dict[str, dict[str, Any]]
    analyses: dict[str, dict[str, float]]
    stopped: _BudgetShape | None = None


def outcome_path(folder: Path, trial: Trial) -> Path:
    """Return the path of the file with the results of a trial."""
    return folder / f"{trial.name}.json"


def write_outcome(folder: Path, trial: Trial, run_dir: Path, outcome: Outcome) -> None:
    """Write the outcome of a trial to ``FOLDER/DIGEST.json``, with its settings, data, version and hardware.

    Args:
        folder: created if missing.
        trial: the trial; its digest names the file.
        run_dir: its run folder.
        outcome: its outcome.
    """
    card = RunFolder(run_dir).read_card()
    create_folder(folder)
    content = {
        "format_version": _FORMAT_VERSION,
        "cell": trial.cell,
        "restart": trial.restart,
        "sampled": trial.sampled,
        "settings": trial.settings.model_dump(mode="json", exclude={"data"}),
        "prepare": None if trial.prepare is None else trial.prepare.model_dump(mode="json"),
        "sources": recorded_sources(trial),
        **{name: card[name] for name in ("version", "environment", "hardware", "parameters")},
        "end": outcome.end,
        **({} if outcome.stopped is None else {"stopped": asdict(outcome.stopped)}),
        "validations": outcome.validations,
        "scores": outcome.scores,
        "analyses": outcome.analyses,
    }
    write_json(outcome_path(folder, trial), _KIND, content)


def read_outcome(folder: Path | None, trial: Trial) -> Outcome | None:
    """Read the outcome of a trial from its file; None if there is none.

    Raises:
        DataError: the file is damaged, or its results are of other settings, because a default has changed, or of other
            data, because the source files have changed.
    """
    if folder is None or not (path := outcome_path(folder, trial)).exists():
        return None
    content = check_shape(_OutcomeShape, read_json(path, _KIND), path)
    if content["format_version"] != _WITHOUT_DEFAULTS:
        _require_same_settings(content, trial, path)
    require_same_sources(content.get("sources", {}), trial, path)
    stopped = None if content.get("stopped") is None else Budget(**content["stopped"])
    return Outcome(content["end"], content["validations"], content["scores"], content["analyses"], stopped)


def _require_same_settings(stored: dict[str, Any], trial: Trial, path: Path) -> None:
    """Compare all settings; the name of the file is a digest only of those that differ from their defaults."""
    changes = changed_fields(
        resolve_settings({"data": str(trial.settings.data), **stored["settings"]}, source=str(path)), trial.settings
    )
    if trial.prepare is not None and stored["prepare"] is not None:
        prepare = PREPARE.validate_python(stored["prepare"])
        changes += differences({"prepare": prepare.model_dump()}, {"prepare": trial.prepare.model_dump()})
    if changes:
        raise DataError(
            path, f"results of other settings: {'; '.join(changes)}; without this file the trial is trained again"
        )

"""What a sweep and its report read of a completed trial: from its run folder, or from a file with its results.

The file has some kilobytes and replaces a run folder with its weights: results can be committed, and a sweep can
continue on another machine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from structattn.runs.events import verified_events
from structattn.runs.folder import RunFolder
from structattn.support.files import create_folder
from structattn.support.json_files import read_json, write_json
from structattn.support.shapes import Shape, check_shape
from structattn.sweeps.analysis_scores import analysis_scores
from structattn.sweeps.trials import Trial

_KIND: Final = "trial"
_FORMAT_VERSION: Final = 1

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The logged and evaluated scores of a run that has ended.

    Args:
        end: the event that ended the run.
        validations: the validation events, in order.
        scores: split -> the scores that evaluation wrote.
        analyses: analysis, such as ``contrastive``, -> name -> score.
    """

    end: Event
    validations: Sequence[Event]
    scores: Mapping[str, Mapping[str, Any]]
    analyses: Mapping[str, Mapping[str, float]]


class _OutcomeShape(Shape):
    """The fields of a file that are read."""

    end: dict[str, Any]
    validations: list[dict[str, Any]]
    scores: dict[str, dict[str, Any]]
    analyses: dict[str, dict[str, float]]


def outcome_of_run(run_dir: Path) -> Outcome | None:
    """Read the outcome of a run from its folder; None if the run has not ended."""
    run = RunFolder(run_dir)
    end = run.end_event()
    if end is None:
        return None
    scores = {path.stem: read_json(path, "scores") for path in sorted((run_dir / "scores").glob("*.json"))}
    return Outcome(end, verified_events(run, ["validation"]), scores, analysis_scores(run_dir))


def outcome_path(folder: Path, trial: Trial) -> Path:
    """Return the path of the file with the results of a trial."""
    return folder / f"{trial.name}.json"


def write_outcome(folder: Path, trial: Trial, run_dir: Path) -> None:
    """Write the outcome of a completed trial to ``FOLDER/DIGEST.json``, with its settings, version and hardware.

    Args:
        folder: created if missing.
        trial: the trial; its digest names the file.
        run_dir: its run folder.
    """
    outcome = outcome_of_run(run_dir)
    if outcome is None:
        raise ValueError(f"{run_dir}: the run has not ended")
    card = RunFolder(run_dir).read_card()
    create_folder(folder)
    content = {
        "format_version": _FORMAT_VERSION,
        "cell": trial.cell,
        "restart": trial.restart,
        "sampled": trial.sampled,
        "settings": trial.settings.model_dump(mode="json", exclude_defaults=True, exclude={"data"}),
        "prepare": None if trial.prepare is None else trial.prepare.model_dump(mode="json", exclude_defaults=True),
        **{name: card[name] for name in ("version", "environment", "hardware", "parameters")},
        "end": outcome.end,
        "validations": outcome.validations,
        "scores": outcome.scores,
        "analyses": outcome.analyses,
    }
    write_json(outcome_path(folder, trial), _KIND, content)


def read_outcome(folder: Path | None, trial: Trial) -> Outcome | None:
    """Read the outcome of a trial from its file; None if there is none.

    Raises:
        DataError: the file is damaged.
    """
    if folder is None or not (path := outcome_path(folder, trial)).exists():
        return None
    content = check_shape(_OutcomeShape, read_json(path, _KIND), path)
    return Outcome(content["end"], content["validations"], content["scores"], content["analyses"])

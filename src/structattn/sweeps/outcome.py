"""What a sweep and its report read from the run folder of a trial."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from structattn.runs.checkpoint import DamagedCheckpointError, read_manifest, read_state_file
from structattn.runs.folder import RunFolder
from structattn.runs.selection import best_update, best_updates, verified_events
from structattn.runs.store import checkpoint_path, checkpoint_updates
from structattn.settings.published import (
    BLIMP,
    CHUNKING,
    COMPARISON,
    CONTRASTIVE,
    EXTRACTION,
    NEIGHBOURS,
    PARSING,
    SYNTAXGYM,
)
from structattn.settings.run import unit_of_loss
from structattn.settings.training import Budget, TrainingSettings, Unit
from structattn.support.errors import StructattnError
from structattn.support.grouping import grouped
from structattn.support.json_files import read_json
from structattn.sweeps.trials import Trial
from structattn.training.progress import current_epoch, has_trained

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The logged and evaluated scores of a run that has ended, or has been trained for a budget.

    Args:
        end: the event that ended the run; None if it has not ended.
        validations: the validation events, in order; those within the budget if the run has not ended.
        scores: split -> the scores that evaluation wrote.
        analyses: analysis, such as ``contrastive``, -> name -> score.
        stopped: the budget; None if the run has ended.
    """

    end: Event | None
    validations: Sequence[Event]
    scores: Mapping[str, Mapping[str, Any]]
    analyses: Mapping[str, Mapping[str, float]]
    stopped: Budget | None = None

    def reaches(self, budget: Budget | None) -> bool:
        """Return whether the run has been trained for a budget, or has ended; None: whether it has ended."""
        if self.stopped is None or budget is None:
            return self.end is not None
        return self.stopped.unit == budget.unit and self.stopped.count >= budget.count

    def contains(self, other: "Outcome") -> bool:
        """Return whether this is the same training, with all scores and analyses of another outcome, and maybe more."""
        return self.is_same_training(other) and self == self.joined(other)

    def is_same_training(self, other: "Outcome") -> bool:
        """Return whether another outcome differs in scores and analyses alone."""
        return (self.end, self.stopped, self.validations) == (other.end, other.stopped, other.validations)

    def joined(self, other: "Outcome") -> "Outcome":
        """Return this with the scores and analyses of another outcome of the same training, which replace its own."""
        scores, analyses = {**self.scores, **other.scores}, {**self.analyses, **other.analyses}
        return replace(self, scores=scores, analyses=analyses)

    def trained(self, unit: Unit) -> int | None:
        """Return how many epochs or updates the run was trained for; None if it has not ended."""
        return None if self.end is None else int(self.end[unit.removesuffix("s")])

    def validations_within(self, budget: Budget) -> list[Event]:
        """Return the validation events of the first epochs or updates."""
        field = "epoch" if budget.unit == "epochs" else "update"
        return [event for event in self.validations if event[field] <= budget.count]


def outcome_of_run(run_dir: Path) -> Outcome | None:
    """Read the outcome of a run from its folder; None if the run has not ended."""
    run = RunFolder(run_dir)
    end = run.end_event()
    if end is None:
        return None
    scores = {path.stem: read_json(path, "scores") for path in sorted((run_dir / "scores").glob("*.json"))}
    return Outcome(end, verified_events(run, ["validation"]), scores, analysis_scores(run_dir))


def outcome_after(run_dir: Path, training: TrainingSettings, budget: Budget) -> Outcome | None:
    """Read the outcome of a run that has been trained for a budget, or has ended; None if it was not trained so far.

    It does not depend on later training, unless the run has ended.
    """
    run = RunFolder(run_dir)
    if (ended := outcome_of_run(run_dir)) is not None:
        return ended
    updates = checkpoint_updates(run.checkpoints)
    try:
        newest = checkpoint_path(run.checkpoints, max(updates, default=0))
        progress = read_state_file(newest, read_manifest(newest)).progress
    except DamagedCheckpointError:  # missing, too; training replaces it
        return None
    trained = current_epoch(progress) if budget.unit == "epochs" else progress.update
    if trained <= budget.count and (
        not has_trained(progress, budget, training)
        # A worker may have been killed before it named the best checkpoint; training does that first.
        or _update_in(run.best) != progress.best_update
    ):
        return None
    whole = Outcome(None, verified_events(run, ["validation"]), {}, {}, budget)
    return replace(whole, validations=whole.validations_within(budget))


def _update_in(best: Path) -> int | None:
    try:
        return best_update(best)
    except StructattnError:  # missing or damaged
        return None


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial that has ended.

    Args:
        trial: the trial.
        score: validation score of the best checkpoint, lower is better, in nats per symbol: the difference from the
            lower bound if that is known, else the cross-entropy (also if BLEU selects the checkpoint).
        rank: the number by which it is compared with other trials of its cell; see ``validation_rank``.
        update: the update of that validation.
        outcome: all its scores.
    """

    trial: Trial
    score: float
    rank: float
    update: int
    outcome: Outcome

    @property
    def name_of_score(self) -> str:
        """What the score is, with its unit."""
        event = next((each for each in self.outcome.validations if each["update"] == self.update), None)
        known = event is not None and event["cross_entropy_difference"] is not None
        what = "difference from the lower bound" if known else "cross-entropy"
        return f"{what}, in nats per {unit_of_loss(self.trial.settings.task)}"


def trial_result(trial: Trial, outcome: Outcome) -> TrialResult | None:
    """Return the result of a trial; None if it has not ended."""
    best_update = None if outcome.end is None else outcome.end["best_update"]
    for event in reversed(outcome.validations):
        if event["update"] == best_update:
            return TrialResult(trial, validation_score(event), validation_rank(event), event["update"], outcome)
    return None


def validation_score(event: Event) -> float:
    """Return the score of a validation: the difference from the lower bound if it is known, else the cross-entropy."""
    difference: float | None = event["cross_entropy_difference"]
    return float(event["cross_entropy"]) if difference is None else difference


def validation_rank(event: Event) -> float:
    """Return the number by which trials are compared, lower is better: minus BLEU if that selects, else the score."""
    bleu: float | None = event.get("bleu")
    return validation_score(event) if bleu is None else -bleu


def best_validation(validations: Sequence[Event]) -> Event | None:
    """Return the validation that selects the best checkpoint, the earlier one of equal ones; None if there is none."""
    updates = best_updates(validations, 1)
    return next((event for event in validations if event["update"] in updates), None)


Scores = dict[str, float]


def analysis_scores(run_dir: Path) -> dict[str, Scores]:
    """Return pseudo-split -> name of the score -> score, for the analyses that a run has.

    - ``comparison``: differences in BLEU from a base run by bins with equally many sentences, from the first, as
      ``reference_length_1_of_5``; if a run was compared with several, those from the last by name.
    - ``contrastive``: accuracy by type of error, over all suites.
    - ``chunking``: accuracy, precision, recall and f1; of two streams ``syntactic_f1``, ``semantic_f1`` and so on.
    - ``parsing``: the same for labelled brackets but accuracy, ``exact``, ``unlabelled_f1``, ``malformed``, and
      ``right_branching_f1``; if several files were parsed, those of the last by name.
    - ``neighbours``: ``source_agreement``, or ``source_syntactic_agreement`` and so on.
    - ``blimp``: accuracy on the pairs of each field, phenomenon and paradigm, and on ``all``.
    - ``syntaxgym``: the scores over several suites, see ``model_scores``; none of a suite alone.
    - ``extraction``: 1 or 0 for ``exact`` and for ``automaton``, ``causal_difference``, and ``extracted_model``.

    Raises:
        DataError: an analysis is damaged.
    """
    analyses: dict[str, Scores] = {}
    for name, scores_of in _READERS.items():
        names = "*-against-*.json" if name == COMPARISON else f"{name}*.json"
        paths = sorted((run_dir / "analyses").glob(names), key=lambda path: path.stem)
        scores = [scores_of(read_json(path, "analysis")) for path in paths]
        if any(scores):
            analyses[name] = {key: value for each in scores for key, value in each.items()}
    return analyses


def _comparison(analysis: Mapping[str, Any]) -> Scores:
    """Return attribute_BIN_of_BINS -> difference; other analyses, whose names may have the word, have no bins."""
    bins = [each for each in analysis.get("bins", ()) if each["binning"] == "equal count"]
    return {
        f"{re.sub(r'[^a-z]+', '_', attribute)}_{number}_of_{len(of_attribute)}": each["difference"]
        for attribute, of_attribute in grouped(bins, lambda each: each["attribute"]).items()
        for number, each in enumerate(of_attribute, start=1)
    }


def _chunking(analysis: Mapping[str, Any]) -> Scores:
    by_stream: Scores = {}
    for each in analysis["streams"]:
        scores = each["scores"]
        values = {"accuracy": scores["accuracy"], **_plain(scores["overall"], "precision", "recall", "f1")}
        by_stream |= {_of_stream(each["stream"], name): value for name, value in values.items()}
    return by_stream


def _parsing(analysis: Mapping[str, Any]) -> Scores:
    return {
        **_plain(analysis["scores"]["labelled"], "precision", "recall", "f1", "exact"),
        "unlabelled_f1": analysis["scores"]["unlabelled"]["f1"],
        "malformed": analysis["malformed"],
        "right_branching_f1": analysis["right_branching"]["labelled"]["f1"],
    }


def _neighbours(analysis: Mapping[str, Any]) -> Scores:
    side = analysis["side"]
    return {f"{side}_{_of_stream(each['stream'], 'agreement')}": each["value"] for each in analysis["streams"]}


def _plain(scores: Mapping[str, float], *names: str) -> Scores:
    return {name: scores[name] for name in names}


def _of_stream(stream: str | None, name: str) -> str:
    return name if stream is None else f"{stream}_{name}"


def _blimp(analysis: Mapping[str, Any]) -> Scores:
    groups = {"all": analysis["overall"], **analysis["fields"], **analysis["phenomena"], **analysis["paradigms"]}
    return {name: accuracy["sentence"]["value"] for name, accuracy in groups.items()}


_READERS: dict[str, Callable[[Mapping[str, Any]], Scores]] = {
    COMPARISON: _comparison,
    CONTRASTIVE: lambda analysis: {kind: each["value"] for kind, each in analysis["types"].items()},
    CHUNKING: _chunking,
    PARSING: _parsing,
    NEIGHBOURS: _neighbours,
    BLIMP: _blimp,
    SYNTAXGYM: lambda analysis: dict(analysis.get("scores", {})),
    EXTRACTION: lambda analysis: dict(analysis["scores"]),
}

"""The trials of each model on each language of the arena, and their scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from stored import Stored

from structattn.metrics.statistics import Proportion, wilson_interval
from structattn.sweeps.table import split_scores
from structattn.sweeps.trials import cells_of

SOLVED: Final = 0.99
"""Least accuracy on members and negatives, as many of each, that counts as a solution."""
PLACES: Final = ("within", "beyond")


@dataclass(frozen=True)
class Entry:
    """The trials of a model on a language.

    Args:
        model: its name.
        language: the language.
        trials: their lines, at least one.
    """

    model: str
    language: str
    trials: Sequence[Mapping[str, Any]]

    def numbers(self, name: str) -> list[float]:
        """Return a score of the split test of each trial."""
        scores = [split_scores(trial["scores"])["test"] for trial in self.trials]
        return [each[name] for each in scores if name in each]

    def strings(self, place: str) -> Proportion:
        """Return the accuracy of the first trial over its test strings, within the lengths of training or beyond."""
        return pooled(self.trials[0]["scores"]["test"]["recognition"]["groups"]["all"], place)

    def solving(self, place: str) -> Proportion:
        """Return the share of trials that solve the language."""
        return wilson_interval([each >= SOLVED for each in self.numbers(f"accuracy_{place}")])

    @cached_property
    def seconds(self) -> float | None:
        """The mean CPU seconds of a training; None if no trial was trained without interruption."""
        known = [trial["cpu_seconds"] for trial in self.trials if trial.get("cpu_seconds") is not None]
        return sum(known) / len(known) if known else None


def pooled(bands: Mapping[str, Mapping[str, Any]], place: str) -> Proportion:
    """Return the proportion over the first band, or over all others."""
    by_length = [each for name, each in bands.items() if name != "all"]
    chosen = by_length[:1] if place == "within" else by_length[1:]
    right, wrong = sum(each["successes"] for each in chosen), sum(each["trials"] - each["successes"] for each in chosen)
    return wilson_interval([True] * right + [False] * wrong)


def entries(results: Stored) -> list[Entry]:
    """Return the models with trials on each language, in the order of the recipe."""
    found = []
    for cell in cells_of(results.recipe):
        trials = sorted(results.trials_of(cell), key=lambda trial: trial["restart"])
        if trials := [trial for trial in trials if trial["end"] and "test" in trial["scores"]]:
            found.append(Entry(cell["model"], cell["language"], trials))
    return found

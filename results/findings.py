"""The findings of the papers, each with its verdict, which follows from the stored results: findings.yaml.

A finding is an order or a bound, judged as the claims of a recipe are, or a published number, which lies in our
interval or does not. Nothing here states a verdict.
"""

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import yaml
from pydantic import Field, model_validator
from stored import HERE, RECIPES, Stored, stored

from structattn.metrics.statistics import sample_statistics
from structattn.metrics.verdicts import Judgement, judge, judge_number
from structattn.settings.base import Settings
from structattn.settings.published import Claim, ScoreName
from structattn.sweeps.comparison import (
    check_claim,
    configuration_differences,
    row_score,
    score_statistics,
    scores_by_seed,
)
from structattn.sweeps.table import TableRow

AGREES, DISAGREES, UNDECIDED, NOT_HERE, NOT_RUN = VERDICTS = (
    "agrees",
    "disagrees",
    "undecided",
    "not decidable at this size",
    "not run",
)
ARENA_RESULTS = "arena/small"
WORDS = {"holds": AGREES, "fails": DISAGREES, "undecided": UNDECIDED}


class Requirement(Settings):
    """What models must have learned before their order says something."""

    score: str = Field(description="mean over the trials: `validation` or SPLIT.NAME")
    at_least: float = Field(default=-inf, allow_inf_nan=True)
    at_most: float = Field(default=inf, allow_inf_nan=True)
    of: tuple[int, ...] = Field(default=(0, 1), description="which of the two models must have learned it")


Keys = tuple[str | int, ...]


class Measured(Settings):
    """A number of a JSON file, in place of a score of a sweep."""

    label: str
    file: str = Field(description="path in the repository")
    keys: Keys
    relative_to: Keys = ()
    limits: tuple[Keys, ...] = Field(default=(), description="the ends of its 95 % interval")


class Published(Settings):
    """Published numbers, in the order of the finding: ours first, then that with which it is compared."""

    values: tuple[float, ...] = ()
    deviations: tuple[float, ...] = Field(default=(), description="population standard deviations, as printed")
    seeds: int = Field(default=5, description="behind the deviations")
    text: str = Field(default="", description="where there are no numbers")


class Finding(Settings):
    """A finding of a paper."""

    finding: str = Field(description="the finding in words")
    published: Published = Published()
    results: str | None = Field(default=None, description="name of the stored results; null: not run")
    claim: Claim | None = Field(default=None, description="what is expected of one cell; null: `number` is published")
    number: str | None = Field(default=None, description="source of a published number in the stored comparisons")
    shown: str | None = Field(default=None, description="a score that stands beside the published one, but see `here`")
    measured: Measured | None = None
    cell: dict[str, str] = Field(default={}, description="of `number` and `shown`")
    against: str | None = Field(
        default=None, description="the score with which the claim's is compared, of the same cell or of that compared"
    )
    unit: float = 1.0
    longer: bool = Field(default=False, description="the score is that of strings longer than those of training")
    requires: Requirement | None = None
    arena: str | None = Field(default=None, description="language of the arena, which judges the order over seeds")
    here: str = Field(default="", description="why ours decide nothing, or what sets them apart from the published")
    left: str = Field(default="", description="cost of a finding that was not run")
    recipe: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _describe_claim(cls, content: Any) -> Any:
        if isinstance(content, dict) and "claim" in content:
            return {**content, "claim": {"description": content["finding"], **content["claim"]}}
        return content


class Table(Settings):
    """A table, figure or section of a paper."""

    name: str
    about: str = ""
    unit: str = Field(default="", description="of the numbers")
    findings: tuple[Finding, ...]

    @model_validator(mode="before")
    @classmethod
    def _share(cls, content: Any) -> Any:
        """Take what an order does not state from `shared`, that of its claim, too."""
        if not isinstance(content, dict) or "shared" not in content:
            return content
        shared, findings = content["shared"], content["findings"]
        orders = [
            {**shared, **each, "claim": {**shared.get("claim", {}), **each["claim"]}} if "claim" in each else each
            for each in findings
        ]
        return {**{name: value for name, value in content.items() if name != "shared"}, "findings": orders}


class Paper(Settings):
    """A paper, its tables, and the stored results that its page describes."""

    paper: str
    page: str = Field(default="", description="name of its page; empty: nothing was run")
    sections: tuple[str, ...] = ()
    tables: tuple[Table, ...]


@dataclass(frozen=True)
class Number:
    """One of our numbers, with half the width of its 95 % interval over seeds."""

    value: float
    interval: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.3g}" + ("" if self.interval is None else f" ± {self.interval:.2g}")


@dataclass(frozen=True)
class Row:
    """A finding with what the results say of it.

    Args:
        finding: the finding.
        verdict: one of VERDICTS.
        why: the reason of a verdict other than agrees and disagrees; what else the trials say.
        ours: our numbers, in the order of the published ones.
        difference: the difference with its 95 % interval.
        beyond: our numbers for strings longer than those of training, where others are of the lengths of training.
        labels: the cells of our numbers.
    """

    finding: Finding
    verdict: str
    why: str
    ours: tuple[Number, ...] = ()
    difference: str = ""
    beyond: tuple[Number, ...] = ()
    labels: tuple[str, ...] = ()


def in_arena(finding: Finding) -> Row | None:
    """Return the verdict of the arena on the order of two language models, None where it has none."""
    if finding.arena is None or finding.claim is None:
        return None
    place = "beyond" if finding.longer else "within"
    cell = {**finding.claim.cell, "language": finding.arena}
    claim = {"cell": cell, "score": f"test.members_difference_{place}", "statistic": "mean"}
    # An accuracy of 0.5 is chance. The worse model, of the higher cross-entropy, may fail:
    # that one without a stack does is what some findings say.
    better = 0 if finding.claim.below else 1
    again = {
        "results": ARENA_RESULTS,
        "claim": finding.claim.model_copy(update=claim),
        "requires": Requirement(score="test.accuracy_within", at_least=0.6, of=(better,)),
        "here": f"lengths to {200 if finding.longer else 40}",
    }
    row = judged(finding.model_copy(update=again))
    return None if row.verdict == NOT_RUN else row


def score_name(finding: Finding) -> str:
    """Return the name of the score that a finding is about, or an empty string for other measurements."""
    if finding.number is not None and finding.results is not None:
        return next(each.name for each in stored(finding.results).recipe.published if each.source == finding.number)
    return "" if finding.claim is None else finding.claim.name


@cache
def papers() -> list[Paper]:
    """Read the findings."""
    content = yaml.safe_load((HERE / "findings.yaml").read_text(encoding="utf-8"))
    return [Paper.model_validate(each) for each in content]


def judged(finding: Finding) -> Row:
    """Return the verdict on a finding."""
    if finding.measured is not None:
        number = _measured(finding.measured, finding.unit)
        return Row(finding, NOT_HERE, finding.here, (number,), labels=(finding.measured.label,))
    if finding.results is None:
        path = f"{RECIPES.relative_to(HERE.parent)}/{finding.recipe}.yaml"
        recipe = "" if finding.recipe is None else f"[recipe](../{path})"
        why = "; ".join(filter(None, (finding.here, recipe, finding.left)))
        return Row(finding, NOT_HERE if finding.here else NOT_RUN, why)
    results = stored(finding.results)
    if finding.claim is not None:
        return _ordered(finding, finding.claim, results)
    row = _row(results, finding.cell)
    if finding.number is not None:
        return _published(finding, results, row)
    split, _, name = (finding.shown or "").partition(".")
    number = Number(row.splits[split][name] / finding.unit)
    return Row(finding, NOT_HERE, finding.here, (number,), labels=(_label(row.cell),))


def _measured(measured: Measured, unit: float) -> Number:
    content = json.loads((HERE.parent / measured.file).read_text(encoding="utf-8"))
    scale = (_at(content, measured.relative_to) if measured.relative_to else 1.0) * unit
    value = _at(content, measured.keys) / scale
    ends = [_at(content, keys) / scale for keys in measured.limits]
    return Number(value, max(abs(end - value) for end in ends) if ends else None)


def _at(content: Any, keys: Keys) -> float:
    for key in keys:
        content = content[key]
    return float(content)


def _published(finding: Finding, results: Stored, row: TableRow) -> Row:
    """Return whether a published number lies in our interval; numbers of other configurations are not compared."""
    table = next(each for each in results.recipe.published if each.source == finding.number)
    value = next(each for each in table.values if each.cell == finding.cell)
    ours, labels = (_number(row, table, table.unit),), (_label(row.cell),)
    if differences := configuration_differences(results.recipe, table, value):
        more = f"; and {len(differences) - 2} more" if len(differences) > 2 else ""
        return Row(finding, NOT_HERE, f"{'; '.join(differences[:2])}{more}", ours, labels=labels)
    if table.statistic != "mean":
        return Row(finding, UNDECIDED, "one number", ours, labels=labels)
    scores = {seed: score / table.unit for seed, score in scores_by_seed(table, row).items()}
    judgement = judge_number(scores, value.value, table.rounding)
    return Row(finding, WORDS[judgement.verdict], _reason(judgement), ours, labels=labels)


def _ordered(finding: Finding, claim: Claim, results: Stored) -> Row:
    """Return the verdict on an order of two cells or of two scores of one cell, or on a bound of one score."""
    cell = {axis: str(value) for axis, value in claim.cell.items()}
    versus = claim.below if claim.below is not None else claim.above
    cells = [cell] if versus is None else [cell, {**cell, **versus}]
    missing = [_label(each) for each in cells if results.row(each) is None]
    if missing:
        return Row(finding, NOT_RUN, "; ".join(filter(None, (f"no {' and no '.join(missing)} yet", finding.left))))
    rows = [_row(results, each) for each in cells]
    scores = [claim, claim.model_copy(update={"score": finding.against}) if finding.against else claim][: len(rows)]
    numbers = tuple(_number(row, score, finding.unit) for row, score in zip(rows, scores, strict=True))
    names = [f", {score.name}" if finding.against else "" for score in scores]
    labels = tuple(f"{_label(row.cell)}{name}" for row, name in zip(rows, names, strict=True))
    needed = finding.requires
    short = [_shortfall(rows[each], needed) for each in needed.of] if needed else []
    beyond = [longer(results, each) for each in cells]
    means = tuple(Number(sample_statistics([*each.values()]).mean) for each in beyond) if all(beyond) else ()
    if finding.longer and means:
        numbers = ()  # of all lengths
    if any(short):
        return Row(finding, NOT_HERE, "; ".join(filter(None, short)), numbers, "", means, labels)
    if finding.against or (finding.longer and means):
        by_seed = beyond if finding.longer else [*map(scores_by_seed, scores, rows)]
        judgement = judge(by_seed[0], by_seed[1], above=claim.above is not None, margin=claim.margin)
    else:
        judgement = _claimed(finding, claim, cell, results)
    why = (
        _reason(judgement),
        _still_improving(results, cells),
        "earlier settings" if results.changes else "",
        finding.here,
    )
    return Row(
        finding,
        WORDS[judgement.verdict],
        "; ".join(filter(None, why)),
        numbers,
        _difference(judgement, finding.unit),
        means,
        labels,
    )


def _claimed(finding: Finding, claim: Claim, cell: dict[str, str], results: Stored) -> Judgement:
    judgement = check_claim(claim, cell, results.rows).judgement
    if judgement is None:
        raise ValueError(f"{finding.finding}: {finding.results} has no {claim.score}")
    return judgement


def _reason(judgement: Judgement) -> str:
    """Return why a verdict is undecided, in the words of this page, and what else is to be known."""
    first, _, rest = judgement.reason.partition(" ")
    return "; ".join(filter(None, (f"{WORDS.get(first, first)} {rest}".strip(), judgement.remark)))


def _label(cell: Mapping[str, str]) -> str:
    return ", ".join(cell.values())


def _row(results: Stored, cell: dict[str, str]) -> TableRow:
    row = results.row(cell)
    if row is None:
        raise ValueError(f"{results.name} has no {' '.join(cell.values())}")
    return row


def longer(results: Stored, cell: dict[str, str]) -> dict[Hashable, float]:
    """Return seed -> nats per symbol above the bound on test strings longer than those of training.

    Empty if no trial of the cell was tested within and beyond the lengths of training.
    """
    found: dict[Hashable, float] = {}
    for trial in results.trials_of(cell):
        test = trial["scores"].get("test", {})
        lengths, longest = test.get("by_length", []), test.get("data", {}).get("train_lengths", [0, 0])[1]
        beyond = [each for each in lengths if each["length"] > longest]
        if 0 < len(beyond) < len(lengths) and test["cross_entropy_difference"] is not None:
            symbols = [each["num_sequences"] * (each["length"] + 1) for each in beyond]
            total = sum(n * each["cross_entropy_difference"] for n, each in zip(symbols, beyond, strict=True))
            found[trial["seed"]] = total / sum(symbols)
    return found


def _number(row: TableRow, claim: ScoreName, unit: float) -> Number:
    value, spread = row_score(row, claim), score_statistics(row, claim)
    if value is None:
        raise ValueError(f"{row.cell} has no {claim.score}")
    interval = None if claim.statistic != "mean" or spread is None else spread.interval
    return Number(value / unit, None if interval is None else interval / unit)


def _difference(judgement: Judgement, unit: float) -> str:
    found = judgement.difference
    limits = "" if found.limits is None else f" ({found.limits[0] / unit:.3g} to {found.limits[1] / unit:.3g})"
    return f"{found.value / unit:+.3g}{limits}"


def _shortfall(row: TableRow, requirement: Requirement) -> str:
    split, _, name = requirement.score.partition(".")
    mean = row.over_trials[split][name].mean if name else row.validation.mean
    if requirement.at_least <= mean <= requirement.at_most:
        return ""
    needed = f"{requirement.at_least:g}" if mean < requirement.at_least else f"at most {requirement.at_most:g}"
    return f"{_label(row.cell)} has {mean:.3g} in {requirement.score}, {needed} is needed"


def _still_improving(results: Stored, cells: list[dict[str, str]]) -> str:
    """Say whether the best update of every trial that ended is its last."""
    ends = [trial["end"] for cell in cells for trial in results.trials_of(cell) if trial["end"]]
    if ends and all(end["best_update"] == end["update"] for end in ends):
        return "still improving at the end"
    return ""

"""Tables of runs and of scores for each split, with lower bounds, n-gram baselines and cautions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from structattn.report.page import (
    MISSING,
    Markup,
    count,
    duration,
    joined,
    nats,
    number_cell,
    percent,
    perplexity,
    points,
    stacked_table,
    table,
    tag,
    unbroken,
)
from structattn.report.runs import Run, units_of
from structattn.report.style import LineStyle
from structattn.settings.run import LIMITS
from structattn.settings.training import TrainingSettings

Score = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A column of a split: its heading, and the nested fields, format and best (min, max or None) of its values."""

    heading: str
    path: tuple[str, ...]
    written: Callable[[float | None], str]
    best: Callable[[list[float]], float] | None = None

    def of(self, score: Score) -> float | None:
        """Return the value in a split's scores; None if missing."""
        value: Any = score
        for name in self.path:
            value = (value or {}).get(name)
        return None if value is None else float(value)


_PLAIN = (
    Column("cross-entropy", ("cross_entropy",), nats, min),
    Column("perplexity", ("perplexity",), perplexity, min),
)
_BOUNDED = (
    Column("cross-entropy", ("cross_entropy",), nats),
    Column("bound", ("lower_bound",), nats),
    Column("difference", ("cross_entropy_difference",), nats, min),
    Column("perplexity", ("perplexity",), perplexity),
)
_OPTIONAL = (
    Column("pseudo-perplexity", ("pseudo", "perplexity"), perplexity, min),
    Column("perplexity per word", ("text", "perplexity_per_word"), perplexity, min),
    Column("bits per character", ("text", "bits_per_character"), nats, min),
    Column("<unk>", ("text", "unknown_share"), percent),
    Column("accuracy", ("accuracy",), percent, max),
    Column("accuracy, greedy", ("accuracy_greedy",), percent, max),
    Column("BLEU", ("translation", "BLEU", "value"), points, max),
    Column("chrF2", ("translation", "chrF2", "value"), points, max),
    Column("TER", ("translation", "TER", "value"), points, min),
)


def swatch(style: LineStyle) -> Markup:
    """Return a small square in the colour of a run."""
    return tag("span", class_="swatch", style=f"background:{style.color}", aria_hidden="true")


def table_of_rows(
    title: str,
    headings: Sequence[str],
    runs: Sequence[tuple[Run, LineStyle, Sequence[tuple[str, Sequence[str]]]]],
    caption: str,
) -> Markup:
    """Return a table with several rows for each run: names below the first heading, numbers below the others."""
    first, *numbers = headings
    head = [tag("th", "run"), tag("th", first), *(tag("th", each, class_="number") for each in numbers)]
    body = [
        [tag("th", swatch(style), run.name, scope="row"), tag("td", name), *map(number_cell, cells)]
        for run, style, rows in runs
        for name, cells in rows
    ]
    return joined(tag("h3", title), table(head, body), tag("p", caption, class_="note"))


def all_splits(runs: Sequence[Run]) -> list[str]:
    """Return the splits that any run was evaluated on, in order of first occurrence."""
    return list(dict.fromkeys(split for run in runs for split in run.scores))


def main_split(runs: Sequence[Run]) -> str:
    """Return the split that figures show: ``test`` if a run was evaluated on it, else the first."""
    splits = all_splits(runs)
    return "test" if "test" in splits else next(iter(splits), "")


def _columns(runs: Sequence[Run], split: str) -> tuple[Column, ...]:
    scores = [run.scores[split] for run in runs if split in run.scores]
    always = _BOUNDED if any(score.get("lower_bound") is not None for score in scores) else _PLAIN
    return *always, *(column for column in _OPTIONAL if any(column.of(score) is not None for score in scores))


def _cells(column: Column, scores: Sequence[Score]) -> list[Markup]:
    """Return the cells of a column; the best value is bold if two or more runs have one."""
    values = [column.of(score) for score in scores]
    known = [value for value in values if value is not None]
    best = column.best(known) if column.best is not None and len(known) > 1 else None
    written = [(column.written(value), value is not None and value == best) for value in values]
    return [number_cell(tag("strong", text) if is_best else text) for text, is_best in written]


def _title(run: Run, style: LineStyle, detail: str = "") -> Markup:
    inner = [tag("div", unbroken(detail), class_="model")] if detail else []
    return tag("th", swatch(style), run.name, *inner, scope="row")


def _run_row(run: Run, style: LineStyle) -> list[Markup]:
    rate = run.tokens_per_second
    result = run.card.get("result") or {}
    cells = (
        count(run.card.get("parameters")),
        count(result.get("update")),
        count(next((score["update"] for score in run.scores.values() if score.get("update") is not None), None)),
        MISSING if rate is None else f"{rate:,.0f}",
        duration(result.get("seconds")),
        str(result.get("reason", MISSING)).replace("_", " "),
    )
    return [_title(run, style, run.model or MISSING), *map(number_cell, cells)]


def collect_baselines(runs: Sequence[Run], splits: Sequence[str]) -> dict[str, dict[str, Score]]:
    """Return baseline -> split -> scores, from the first run that has them."""
    baselines: dict[str, dict[str, Score]] = {}
    for split in splits:
        for run in runs:
            for name, score in (run.scores.get(split, {}).get("baselines") or {}).items():
                baselines.setdefault(name, {}).setdefault(split, score)
    return baselines


def _baseline_row(name: str, scores: Mapping[str, Score], split: str, columns: Sequence[Column]) -> list[Markup]:
    weights = next((score["weights"] for score in scores.values() if score.get("weights")), None)
    detail = "weights " + " ".join(f"{weight:.2f}" for weight in weights) if weights else "counts"
    title = tag("th", f"{name} baseline", tag("div", detail, class_="model"), scope="row")
    return [title, *[number_cell(column.written(column.of(scores.get(split, {})))) for column in columns]]


def _split_table(split: str, runs: Sequence[tuple[Run, LineStyle]], baselines: Mapping[str, Any]) -> Markup:
    only = [run for run, _ in runs]
    columns = _columns(only, split)
    cells = [_cells(column, [run.scores.get(split, {}) for run in only]) for column in columns]
    rows = [[_title(run, style), *row] for (run, style), row in zip(runs, zip(*cells, strict=True), strict=True)]
    rows += [_baseline_row(name, scores, split, columns) for name, scores in baselines.items() if split in scores]
    return joined(tag("h3", split), stacked_table(["run", *[column.heading for column in columns]], rows))


def summary_tables(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return the table of runs, and a table of the scores on each split, with explanatory notes."""
    only = [run for run, _ in runs]
    splits = all_splits(only)
    rate = units_of(only, "s per second")
    headings = ["run", "parameters", "updates", "scored update", rate, "training time", "ended by"]
    baselines = collect_baselines(only, splits)
    tables = [stacked_table(headings, [_run_row(run, style) for run, style in runs])]
    tables += [_split_table(split, runs, baselines) for split in splits]
    return joined(*tables, tag("p", _note(only, splits), class_="note"))


def _note(runs: Sequence[Run], splits: Sequence[str]) -> str:
    of_strings = units_of(runs) == "string"
    note = f"Cross-entropy in nats per {units_of(runs)}{'' if of_strings else ', <eos> included'}. "
    if any(column in _BOUNDED[1:3] for split in splits for column in _columns(runs, split)):
        note += (
            "The bound is the cross-entropy of the distribution that the strings and their lengths were sampled from; "
            "a difference of 0 is optimal. "
        )
    if any(score.get("mask_seed") is not None for run in runs for score in run.scores.values()):
        note += (
            "That of masked models is per masked token and cannot be compared with that of causal models; "
            "pseudo-perplexity masks each token in turn, without <eos>. "
        )
    return note + ("The best value of each column is bold." if len(runs) > 1 else "")


FEWEST_EXAMPLES: Final = 30
OF_TWO_RUNS: Final = (
    "This holds for these two runs, not for their models: other seeds give other runs. To compare models, train each "
    "with several seeds; see structattn compare --by model."
)
"""What intervals say that come from resampled examples."""

Result = Mapping[str, Any]


def different_ends(results: Mapping[str, Result | None]) -> str | None:
    """Return a warning if runs ended for different reasons or after different numbers of updates; None if not.

    Early stopping ends each run at its own update, which is no reason for a warning.

    Args:
        results: run -> the result in its run card, None if it is in training.
    """
    ends = {(None, 0) if each is None else (each["reason"], each["update"]) for each in results.values()}
    if len(ends) < 2 or {reason for reason, _ in ends} == {"early_stopping"}:
        return None
    return "these runs were not trained equally long: " + "; ".join(
        f"{name} is in training"
        if each is None
        else f"{name} ended after {each['update']} updates ({str(each['reason']).replace('_', ' ')})"
        for name, each in results.items()
    )


def ended_in_warmup(training: TrainingSettings, update: int) -> str | None:
    """Return a warning if a run ended before its learning rate had reached its maximum; None if not."""
    steps = getattr(training.schedule, "warmup_steps", 0)
    if update >= steps:
        return None
    limits = [f"training.{name}" for name in LIMITS if getattr(training, name) is not None]
    return (
        f"training ended after {update} of {steps} warm-up updates, before the learning rate had reached its maximum; "
        f"for little data set fewer (training.schedule.warmup_steps) or train for longer ({', '.join(limits)})"
    )


def few_examples(count: int) -> str | None:
    """Return a warning if a bootstrap resamples too few examples for its intervals to mean anything; None if not."""
    if count >= FEWEST_EXAMPLES:
        return None
    return f"the split has {count} examples to resample, fewer than {FEWEST_EXAMPLES}: intervals and p are unreliable"


def caution_of_few(count: int) -> str:
    """Return a sentence with the warning of ``few_examples``, to follow others; empty if there is none."""
    warning = few_examples(count)
    return "" if warning is None else f" Caution: {warning}."


def worse_than_baselines(scores: Mapping[str, Mapping[str, Score]]) -> list[str]:
    """Return a warning for each run and split whose best n-gram baseline has a lower cross-entropy."""
    warnings = []
    for run, split, score in ((run, split, score) for run, splits in scores.items() for split, score in splits.items()):
        baselines = {name: each["cross_entropy"] for name, each in (score.get("baselines") or {}).items()}
        best = min(baselines, key=lambda name: baselines[name], default=None)
        if best is not None and baselines[best] < score["cross_entropy"]:
            warnings.append(
                f"{run} is worse than the {best} baseline on {split}: cross-entropy {score['cross_entropy']:.4f}, "
                f"baseline {baselines[best]:.4f} nats per token"
            )
    return warnings

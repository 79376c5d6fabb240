"""Tables of question formation and tense reinflection, for terminals and reports."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from structattn.report.page import Markup, joined
from structattn.report.runs import Run
from structattn.report.style import LineStyle
from structattn.report.tables import all_splits, table_of_rows

TransformationRows = Mapping[str, Mapping[str, Any]]  # group -> TransformationScores as a mapping

_PERCENT: Final = {
    "full_match": "full match",
    "first_word": "first word",
    "first_word_probability": "first word, probability",
    "main_verb": "main verb",
    "main_verb_sampled": "main verb, sampled",
}
_PLAIN: Final = {
    "probability": "CP",
    "conditional_cross_entropy": "CCE",
    "log_ratio": "log ratio",
}

CAPTION: Final = (
    "Right, and in brackets the linear rule, in percent: greedy outputs that equal the target, first words of greedy "
    "outputs and their probability, main verbs of greedy outputs and of ten samples with the target's parts of speech. "
    "CP: mean p(target | source). CCE: -log p(target | source) in nats per token. Log ratio: mean of log p(target | "
    "source) - log p(target of the linear rule | source), in nats; positive is hierarchical. Groups: modifier of the "
    "subject (PP; relative clauses ORC on the object, SRCt and SRCi on the subject)."
)


def headings(rows: TransformationRows) -> list[str]:
    """Return the headings of the columns that have values."""
    return [heading for name, heading in (_PERCENT | _PLAIN).items() if _occurs(rows, name)]


def cells(rows: TransformationRows, scores: Mapping[str, Any]) -> list[str]:
    """Return the cells of one group, in the columns of ``headings(rows)``."""
    shown = [_percent(scores, name) for name in _PERCENT if _occurs(rows, name)]
    return shown + [_plain(scores[name]) for name in _PLAIN if _occurs(rows, name)]


def _occurs(rows: TransformationRows, name: str) -> bool:
    return any(scores[name] is not None for scores in rows.values())


def _percent(scores: Mapping[str, Any], name: str) -> str:
    right, wrong = (_value(scores[each]) for each in (name, f"{name}_wrong"))
    if right is None:
        return ""
    return f"{100 * right:.1f}" if wrong is None else f"{100 * right:.1f} [{100 * wrong:.1f}]"


def _value(score: Any) -> float | None:
    """Return the value of a score that may be a proportion with its interval."""
    value: float | None = score["value"] if isinstance(score, Mapping) else score
    return value


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def transformation_sections(runs: Sequence[tuple[Run, LineStyle]]) -> Markup:
    """Return a table for each split with scores of transformations; empty if there is none."""
    return joined(*[_section(runs, split) for split in all_splits([run for run, _ in runs])])


def _section(runs: Sequence[tuple[Run, LineStyle]], split: str) -> Markup:
    scored = [
        (run, style, groups) for run, style in runs if (groups := run.scores.get(split, {}).get("transformation"))
    ]
    if not scored:
        return Markup("")
    every = {
        f"{number} {group}": scores for number, (*_, groups) in enumerate(scored) for group, scores in groups.items()
    }
    body = [
        (run, style, [(group, cells(every, scores)) for group, scores in groups.items()])
        for run, style, groups in scored
    ]
    title = f"Hierarchical and linear generalisation: {split}"
    return table_of_rows(title, ("subject", *headings(every)), body, CAPTION)

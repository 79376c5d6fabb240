"""Sources, references and translations of a sample of sentences, side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from structattn.metrics.translation import import_sacrebleu
from structattn.report.figures.palette import LineStyle
from structattn.report.markup import Markup, joined, tag
from structattn.report.runs import Run
from structattn.report.tables import swatch
from structattn.runs.analyses import hypotheses_path, read_translations
from structattn.support.errors import UsageError
from structattn.support.seeds import numpy_generator
from structattn.text.folders.prepared import open_prepared

SHOWN: Final = 10
Shown = Sequence[tuple[Run, LineStyle]]


class _Translated(NamedTuple):
    """A run and its translations of a split."""

    run: Run
    style: LineStyle
    lines: Sequence[str]


def translation_section(runs: Shown, split: str) -> Markup:
    """Return a random sample of a split with the translations of all runs that have some, the worst first.

    The order is that of the mean chrF2 of the runs on a sentence. Empty if no run has translations; a note if their
    data are not there.

    Raises:
        DataError: the data or the translations are damaged.
    """
    given = [(run, style) for run, style in runs if hypotheses_path(run.folder, split).exists()]
    if not given:
        return Markup("")
    path = Path(str(given[0][0].settings["data"]))
    if not path.exists():
        return tag("p", f"Translations are not shown: {path} is not there.", class_="note")
    prepared = open_prepared(path)
    sources, references = (prepared.texts(split, side) for side in ("source", "target"))
    found = [_Translated(run, style, read_translations(run.folder, split, len(sources))) for run, style in given]
    chosen = numpy_generator(0, "translations", split).permutation(len(sources))[:SHOWN].tolist()
    scores = {index: _chrf([each.lines[index] for each in found], references[index]) for index in chosen}
    rows = [
        _pair(sources[index], references[index], [(each, each.lines[index]) for each in found], scores[index])
        for index in sorted(chosen, key=lambda index: float(np.mean(scores[index] or [0])))
    ]
    order = ", the worst first by chrF2" if any(scores.values()) else ""
    note = f"{len(rows)} of {len(sources):,} sentences, drawn at random{order}."
    return joined(tag("h3", f"Translations ({split})"), tag("p", note, class_="note"), *rows)


def _chrf(hypotheses: Sequence[str], reference: str) -> list[float]:
    """Return chrF2 of each translation; nothing without sacrebleu."""
    try:
        metric: Any = import_sacrebleu("sacrebleu.metrics").CHRF()
    except UsageError:
        return []
    return [float(metric.sentence_score(hypothesis, [reference]).score) for hypothesis in hypotheses]


def _pair(
    source: str, reference: str, translations: Sequence[tuple[_Translated, str]], scores: Sequence[float]
) -> Markup:
    parts = [_part("source", source), _part("reference", reference)]
    for place, (each, line) in enumerate(translations):
        score = f" (chrF2 {scores[place]:.1f})" if scores else ""
        parts.append(tag("div", tag("b", swatch(each.style), each.run.name, score), line))
    return tag("div", *parts, class_="pair")


def _part(name: str, text: str) -> Markup:
    return tag("div", tag("b", name), text)

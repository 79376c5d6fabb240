"""Colour-blind safe colours, and the style of each run in figures and tables; without matplotlib, which is optional."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

# The colours of the light theme; in inline SVG each is replaced by the CSS variable of the same name.
INKS = {"--ink": "#1b2028", "--muted": "#5d6675", "--line": "#c9cfd8", "--grid": "#e6e9ee"}
INK, MUTED, LINE, GRID = INKS.values()

# Okabe & Ito (2008) without black and yellow, which are invisible on dark and light backgrounds.
_HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKERS = ("o", "s", "^", "D", "v", "P")
_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))

PUSH, KEEP, POP, SOURCE = "#0072b2", "#7d8694", "#d55e00", "#7558dc"


@dataclass(frozen=True)
class LineStyle:
    """Colour, marker and dash of one run in all figures and tables."""

    color: str
    marker: str
    dash: Any


def line_style(index: int) -> LineStyle:
    """Return the style of the run with this index; colours repeat after six runs with another dash."""
    return LineStyle(
        color=_HUES[index % len(_HUES)],
        marker=_MARKERS[index % len(_MARKERS)],
        dash=_DASHES[index // len(_HUES) % len(_DASHES)],
    )


MOST_DRAWN: Final = len(_HUES) * len(_DASHES)  # runs that a figure can tell apart
_Shown = TypeVar("_Shown")


def first_drawn(runs: Sequence[_Shown]) -> Sequence[_Shown]:
    """Return the runs that a figure shows: the first 24, whose styles differ."""
    return runs[:MOST_DRAWN]


def side_offset(number: int, many: int, spread: float) -> float:
    """Return how far the marks of one of ``many`` runs move aside, at most ``spread`` / 2, to lie beside the others."""
    return spread * ((number + 0.5) / many - 0.5)

"""Colour-blind safe colours, and the matplotlib style of all figures."""

from dataclasses import dataclass
from typing import Any

from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.font_manager import fontManager

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


def alpha_colormap(color: str) -> LinearSegmentedColormap:
    """Return a colour map from transparent to ``color``, legible on light and dark backgrounds."""
    rgb = to_rgb(color)
    return LinearSegmentedColormap.from_list(f"alpha_colormap {color}", [(*rgb, 0.0), (*rgb, 1.0)])


# For scripts that DejaVu Sans lacks, such as Chinese and Devanagari. Those that are installed are used.
_FALLBACKS = (
    "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans Devanagari", "Noto Sans Bengali", "Noto Sans Thai",
    "Noto Sans Ethiopic", "PingFang SC", "Hiragino Sans", "Microsoft YaHei", "Nirmala UI", "Leelawadee UI",
    "Arial Unicode MS", "WenQuanYi Micro Hei", "Droid Sans Fallback", "FreeSans", "Unifont",
)  # fmt: skip


def fonts() -> list[str]:
    """Return the families of fonts, of which the first that has a character draws it; matplotlib has DejaVu Sans."""
    installed = set(fontManager.get_font_names())
    return ["DejaVu Sans", *(name for name in _FALLBACKS if name in installed)]


STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # tokens such as $ are plain text
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",
    "savefig.dpi": 160,
}

"""The matplotlib style of all figures, and how they are written: as files, and into pages."""

import functools
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.lines import Line2D

from structattn.report.page import Markup, tag
from structattn.report.style import GRID, INK, INKS, LINE, MUTED
from structattn.support.files import write_atomically


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
    "grid.color": GRID,
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


_LOGGER = logging.getLogger("structattn")
_MISSING_GLYPH: Final = re.compile(r"Glyph \d+ \(\\N\{([^}]+)\}\) missing from font")
NARROW: Final = 600  # CSS pixels: narrower figures fit the page of a telephone


@dataclass(frozen=True)
class Plot:
    """A drawn figure with the name of its files and its caption, which is also its description for screen readers."""

    name: str
    figure: Figure
    caption: str


@contextmanager
def figure_style(name: str) -> Iterator[None]:
    """Draw and save figures within this context: a fixed style, and SVG identifiers that depend only on ``name``.

    The style starts from matplotlib's defaults, whatever the settings of the user.
    """
    style: Any = {**STYLE, "font.sans-serif": fonts(), "svg.hashsalt": name}
    with mpl.rc_context(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        mpl.rcdefaults()
        mpl.rcParams.update(style)
        yield
    for warning in caught:
        missing = _MISSING_GLYPH.match(str(warning.message))
        if missing is None:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        else:
            _warn_of_script(missing[1].partition(" ")[0].capitalize())


@functools.cache
def _warn_of_script(script: str) -> None:
    """Say once that no installed font has a script."""
    _LOGGER.warning(
        "no installed font has %s characters: PNG and PDF files of figures show boxes in their place, the page does "
        "not; expected a font such as Noto Sans",
        script,
    )


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of the given size in inches, without a window."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def legend_above(figure: Figure, handles: Sequence[Line2D], labels: Sequence[str]) -> None:
    """Add a legend above the axes, with as many columns as fit the width of the figure, which grows with its rows."""
    width = 0.65 + 0.075 * max(map(len, labels))  # inches of one entry in this font
    columns = max(1, min(len(handles), int(figure.get_figwidth() / width)))
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.18 * max(0, rows - 2))
    figure.legend(handles, labels, loc="outside upper left", ncols=columns)


def _themed(match: re.Match[str], prefix: str) -> str:
    """Replace colours of an SVG tag by CSS variables and make its identifiers unique."""
    text = match[0]
    for variable, color in INKS.items():
        text = text.replace(color, f"var({variable})")
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}-", text)


def _inline_svg(plot: Plot) -> Markup:
    buffer = StringIO()
    plot.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<[^>]*>", lambda match: _themed(match, plot.name), text)
    width = plot.figure.get_figwidth() * 96
    legible = (0.6 if width <= NARROW else 0.75) * width  # a narrower page scrolls
    opening = tag("svg", role="img", aria_label=plot.caption, style=f"width:{width:.0f}px;min-width:{legible:.0f}px")[
        : -len("></svg>")
    ]
    text = re.sub(r'\s(width|height)="[0-9.]+pt"', "", text, count=2)
    return Markup(text.replace("<svg", opening, 1))


def write_files(plot: Plot, folder: Path) -> None:
    """Write NAME.png and NAME.pdf into ``folder``."""
    with figure_style(plot.name):
        for kind, undated in {"png": {"Software": None}, "pdf": {"CreationDate": None}}.items():
            buffer = BytesIO()
            plot.figure.savefig(buffer, format=kind, facecolor="white", metadata=undated)
            write_atomically(folder / f"{plot.name}.{kind}", buffer.getvalue())


def figure_element(plot: Plot, folder: Path) -> Markup:
    """Write NAME.png and NAME.pdf into ``folder`` and return the figure with its caption as HTML."""
    write_files(plot, folder)
    with figure_style(plot.name):
        picture = _inline_svg(plot)
    return tag("figure", tag("div", picture, class_="scroll"), tag("figcaption", plot.caption))


def file_name(*parts: str) -> str:
    """Return a name for files and identifiers, made of letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(parts)).strip("-").lower() or "figure"

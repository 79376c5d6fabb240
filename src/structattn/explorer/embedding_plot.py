"""A plot of word embeddings in the plane: a point for each word, coloured by its part of speech."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.lines import Line2D

from structattn.report.figure import figure_style, legend_above, new_figure
from structattn.report.style import KEEP, LINE, line_style
from structattn.support.errors import UsageError
from structattn.support.files import create_folder, write_atomically
from structattn.support.shapes import Float

FORMATS = {".png": {"Software": None}, ".svg": {"Date": None, "Creator": None}, ".pdf": {"CreationDate": None}}
_CLASSES = {"NN": "noun", "VB": "verb", "JJ": "adjective", "RB": "adverb", "IN": "preposition"}
_OTHER, _UNKNOWN = "other", "unknown"
_COLORS = {name: line_style(index).color for index, name in enumerate(_CLASSES.values())} | {
    _OTHER: KEEP,
    _UNKNOWN: LINE,
}

Points = Float[np.ndarray, "words 2"]


def word_class(tag: str | None) -> str:
    """Return the class of a tag of the Penn Treebank; None, of a word without tag, is unknown."""
    return _UNKNOWN if tag is None else _CLASSES.get(tag[:2], _OTHER)


def require_format(path: Path) -> None:
    """Refuse a file name whose ending names no format of figures.

    Raises:
        UsageError: the ending is none of .png, .svg and .pdf.
    """
    if path.suffix not in FORMATS:
        raise UsageError(f"{path}: expected a name that ends in {', '.join(FORMATS)}")


def write_embedding_plot(path: Path, points: Mapping[str | None, Points], tags: Sequence[str | None]) -> None:
    """Write one panel for each stream, with a point for each word; the ending of the path names the format."""
    classes = [word_class(tag) for tag in tags]
    shown = [name for name in _COLORS if name in classes]
    with figure_style(path.stem):
        figure = new_figure(4.2 * len(points), 4.4)
        for axes, (stream, places) in zip(np.atleast_1d(figure.subplots(1, len(points))), points.items(), strict=True):
            for name in reversed(shown):  # words without tag behind the others
                rows = [row for row, each in enumerate(classes) if each == name]
                axes.scatter(*places[rows].T, s=4, color=_COLORS[name], rasterized=True, linewidths=0)
            axes.set_title("" if stream is None else f"{stream} stream")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        handles = [Line2D([], [], marker="o", linestyle="", color=_COLORS[name]) for name in shown]
        legend_above(figure, handles, shown)
        buffer = BytesIO()
        figure.savefig(buffer, format=path.suffix[1:], facecolor="white", metadata=FORMATS[path.suffix])
    create_folder(path.parent)
    write_atomically(path, buffer.getvalue())

"""HTML built from nested calls, which escape text unless it is markup; and the frame of a page."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from structattn.settings.base import leaves
from structattn.support.files import (
    check_writable_folder,
    create_folder,
    create_folder_unflushed,
    require_own_folder,
    write_atomically,
)
from structattn.support.reading import read_bytes


class Markup(str):
    """Text that is already HTML and is not escaped again."""

    __slots__ = ()


def joined(*children: str) -> Markup:
    """Concatenate children, escaping plain text."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """Return ``<name attributes>children</name>``; trailing underscores of attribute names are dropped (``class_``)."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def number_cell(text: str) -> Markup:
    """Return a table cell of a number."""
    return tag("td", text, class_="number")


def table(head: list[Markup], rows: list[list[Markup]], **attributes: str) -> Markup:
    """Return a table of the cells of its head and of each row. On a narrow page it scrolls."""
    body = [tag("tr", *row) for row in rows]
    return tag("div", tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), **attributes), class_="scroll")


def stacked_table(headings: Sequence[str], rows: list[list[Markup]]) -> Markup:
    """Return a table whose cells stand below each other on a narrow page, each with the heading of its column.

    All columns but the first are of numbers; the first cell of each row is its heading.
    """
    head = [tag("th", headings[0]), *[tag("th", text, class_="number") for text in headings[1:]]]
    labelled = [
        [row[0], *[_labelled(cell, text) for cell, text in zip(row[1:], headings[1:], strict=True)]] for row in rows
    ]
    return table(head, labelled, class_="stacked")


def _labelled(cell: Markup, heading: str) -> Markup:
    return Markup(cell.replace("<td", f'<td data-label="{escape(heading)}"', 1))


_SHOWN = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "": "∅", "<bos>": "▷", "<eos>": "◁"}
MISSING = "—"


def visible(token: str, longest: int = 14) -> str:
    """Format a token as a label: whitespace and control characters made visible, cut to ``longest`` characters."""
    if token in _SHOWN:
        return _SHOWN[token]
    shown = "".join(_SHOWN.get(c, c if c.isprintable() else c.encode("unicode_escape").decode()) for c in token)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def unbroken(text: str) -> str:
    """Replace hyphens by non-breaking hyphens."""
    return text.replace("-", "\N{NON-BREAKING HYPHEN}")


def nats(value: float | None) -> str:
    """Format a cross-entropy or a difference of two, in nats."""
    return MISSING if value is None else f"{value:.4f}"


def perplexity(value: float | None) -> str:
    """Format a perplexity with about five digits."""
    if value is None:
        return MISSING
    return f"{value:.4f}" if value < 10 else f"{value:,.2f}"


def percent(value: float | None) -> str:
    """Format a fraction, such as an accuracy, in percent."""
    return MISSING if value is None else f"{value:.2%}"


def short(value: float | None) -> str:
    """Format a number with four significant digits."""
    return MISSING if value is None else f"{value:.4g}"


def points(value: float | None) -> str:
    """Format a score from 0 to 100, such as BLEU."""
    return MISSING if value is None else f"{value:.2f}"


def with_interval(proportion: Mapping[str, float], dash: str = " to ") -> str:
    """Format a proportion in percent with its interval, such as ``62.5 (60.1 to 64.9)``."""
    value, lower, upper = (100 * proportion[name] for name in ("value", "lower", "upper"))
    return f"{value:.1f} ({lower:.1f}{dash}{upper:.1f})"


def on_known(known: Mapping[str, float] | None, whole: Mapping[str, float]) -> str:
    """Format the share of the trials that have no ``<unk>``, and the proportion among them; empty if none has any."""
    if known is None:
        return "[0 %]"
    share = known["trials"] / whole["trials"]
    return "" if share == 1 else f"[{100 * share:.0f} %: {100 * known['value']:.1f}]"


def duration(seconds: float | None) -> str:
    """Format a time as hours, minutes and seconds, without those that are 0 at the front."""
    if seconds is None:
        return MISSING
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def count(value: int | None) -> str:
    """Format an integer with thousands separators."""
    return MISSING if value is None else f"{value:,}"


def flattened(tree: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Flatten a nested mapping into (dotted path, text) pairs, in order."""
    return [(path, _text(value)) for path, value in leaves(tree, lambda _: False)]


def _text(value: Any) -> str:
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    return MISSING if value is None else str(value)


SIGNATURE: Final = "made with structattn"


def page_text(title: str, body: Markup) -> bytes:
    """Return a whole page of HTML."""
    style = Markup(files("structattn.report").joinpath("page.css").read_text(encoding="utf-8"))
    head = tag(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        tag("title", title),
        tag("style", style),
    )
    page = "<!doctype html>\n" + tag("html", head, tag("body", tag("main", body)), lang="en") + "\n"
    return page.encode(errors="backslashreplace")  # of names that are not UTF-8


def create_report_folder(output: Path) -> Path:
    """Create the folder of a report and return that of its figures; an earlier report in it will be overwritten.

    Until its page is written it has one that says so, by which a repetition knows a report that was interrupted.

    Raises:
        StructattnError: it has other files.
    """
    require_report_folder(output)
    page, figures = output / "index.html", output / "figures"
    create_folder(output)
    if not page.is_file():
        unfinished = f"This report, {SIGNATURE}, is not complete: its command was interrupted. Give it again."
        write_atomically(page, page_text("Report", tag("p", unfinished)))
    create_folder_unflushed(figures)  # its name is flushed with that of the page
    return figures


def require_report_folder(output: Path) -> None:
    """Check that a report can be written to a folder: that it is new or empty, or has an earlier report.

    Raises:
        StructattnError: it has other files.
        OSError: it cannot be created.
    """
    page = output / "index.html"
    if page.is_file() and SIGNATURE.encode() in read_bytes(page):
        return
    require_own_folder(output, (), (page.name,), "a new folder, or one with an earlier report")
    check_writable_folder(output)

"""Build HTML from nested calls; text is escaped unless it is already markup."""

from collections.abc import Sequence
from html import escape


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


def table(head: list[Markup], rows: list[list[Markup]], **attributes: str) -> Markup:
    """Return a table of cells; ``head`` is a list of complete rows. On a narrow page it scrolls."""
    body = [tag("tr", *row) for row in rows]
    return tag("div", tag("table", tag("thead", *head), tag("tbody", *body), **attributes), class_="scroll")


def stacked_table(headings: Sequence[str], rows: list[list[Markup]]) -> Markup:
    """Return a table whose cells stand below each other on a narrow page, each with the heading of its column.

    Args:
        headings: of the columns; all but the first are of numbers.
        rows: cells, the first of each row being its heading.
    """
    head = [tag("th", headings[0]), *[tag("th", text, class_="number") for text in headings[1:]]]
    labelled = [
        [row[0], *[_labelled(cell, text) for cell, text in zip(row[1:], headings[1:], strict=True)]] for row in rows
    ]
    return table([tag("tr", *head)], labelled, class_="stacked")


def _labelled(cell: Markup, heading: str) -> Markup:
    return Markup(cell.replace("<td", f'<td data-label="{escape(heading)}"', 1))

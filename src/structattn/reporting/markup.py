"""Build HTML from nested calls; text is escaped unless it is already markup."""

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
    """Return a table of cells; ``head`` is a list of complete rows."""
    body = [tag("tr", *row) for row in rows]
    return tag("div", tag("table", tag("thead", *head), tag("tbody", *body), **attributes), class_="scroll")

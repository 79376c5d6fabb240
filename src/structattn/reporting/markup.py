"""HTML made of nested calls; text is escaped unless it already is markup."""

from html import escape


class Markup(str):
    """Text that is already HTML and is not escaped again."""

    __slots__ = ()


def joined(*children: str) -> Markup:
    """The children one after another, plain text escaped."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """``<name attributes>children</name>``; a trailing underscore of an attribute's name is dropped (``class_``)."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def table(head: list[Markup], rows: list[list[Markup]], **attributes: str) -> Markup:
    """A table from finished cells; ``head`` holds whole rows."""
    body = [tag("tr", *row) for row in rows]
    return tag("div", tag("table", tag("thead", *head), tag("tbody", *body), **attributes), class_="scroll")

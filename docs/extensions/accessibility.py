"""What the theme leaves out for keyboards and screen readers: reachable scrolling boxes, and levels of headings."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

REPLACED = (
    ('<div class="highlight"><pre>', '<div class="highlight"><pre tabindex="0">'),
    ('<div class="table-wrapper ', '<div tabindex="0" role="group" aria-label="Table" class="table-wrapper '),
    ('class="caption" role="heading"', 'class="caption" role="heading" aria-level="2"'),
)


def complete(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> str | None:
    """Complete the attributes of a page and of its navigation."""
    for part in ("body", "furo_navigation_tree"):
        for old, new in REPLACED:
            if isinstance(context.get(part), str):
                context[part] = context[part].replace(old, new)
    return None


def setup(app: Sphinx) -> dict[str, Any]:
    """Complete pages after the theme has prepared them."""
    app.connect("html-page-context", complete, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

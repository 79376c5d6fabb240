"""Formulas as MathML: browsers render it without a script, and the site requests nothing from elsewhere."""

from typing import Any, cast

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def inline_formula(translator: HTML5Translator, node: nodes.Element) -> None:
    """Write a formula within a line."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed_formula(translator: HTML5Translator, node: nodes.Element) -> None:
    """Write a formula that stands alone; a wide one scrolls within its own box."""
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula" tabindex="0" role="group" aria-label="Formula">{formula}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (cast(Any, inline_formula), None), (cast(Any, displayed_formula), None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

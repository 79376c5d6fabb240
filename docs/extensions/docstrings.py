"""Docstrings as written for the reader of the source: ``|Q|`` and ``a * b`` are formulas, not markup."""

import re
from typing import Any

from sphinx.application import Sphinx

LITERAL = re.compile(r"(``.*?``|`[^`]*`_?)")


def escaped(line: str) -> str:
    """Escape bars and asterisks outside literals."""
    return "".join(part if part.startswith("`") else re.sub(r"([|*])", r"\\\1", part) for part in LITERAL.split(line))


def escape(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Escape a docstring, except its blocks of code."""
    block: int | None = None  # the indentation of the line that introduces a block of code
    for index, line in enumerate(lines):
        indentation = len(line) - len(line.lstrip())
        if line.strip() and block is not None and indentation <= block:
            block = None
        if block is None:
            lines[index] = escaped(line)
            block = indentation if line.endswith("::") else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the escaping, before napoleon reads the sections."""
    app.connect("autodoc-process-docstring", escape, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

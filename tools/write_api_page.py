"""Write docs/api.md: the public names of every package with the first line of their docstrings.

    python tools/write_api_page.py [--check]

``--check`` writes nothing and exits with 1 if the page is out of date.
"""

import inspect
import sys
import textwrap
from importlib import import_module
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
STABLE = ("structattn", "structattn.operators", "structattn.attention", "structattn.attention.positions")
PUBLIC = (
    "structattn.models",
    "structattn.decoding",
    "structattn.settings",
    "structattn.data",
    "structattn.metrics",
    "structattn.tasks",
    "structattn.runs",
    "structattn.training",
    "structattn.inference",
    "structattn.evaluation",
    "structattn.analysis",
    "structattn.reporting",
    "structattn.export",
    "structattn.trackers",
    "structattn.sweeps",
    "structattn.huggingface",
)
INTRODUCTION = """# Public API

Written by `python tools/write_api_page.py` from the `__all__` of each package. A name that is not listed here is
internal and can change at any time.

**Stable** names change only with a major version, after a deprecation in a minor one. So do the formats of prepared
folders and run folders, the exit codes of the commands, and the settings keys. **Public** names can change with a minor
version, which the changelog announces.
"""


def summary(value: object) -> str:
    """Return the first line of an object's docstring, empty for values without one of their own."""
    if not (inspect.ismodule(value) or inspect.isclass(value) or inspect.isroutine(value)):
        return ""
    return (inspect.getdoc(value) or "").partition("\n")[0]


def item(name: str, text: str) -> str:
    """Return a list item, wrapped."""
    line = f"- `{name}`: {text}" if text else f"- `{name}`"
    return textwrap.fill(line, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def section(package: str) -> str:
    """Return the heading and the table of one package."""
    module = import_module(package)
    rows = [item(name, summary(getattr(module, name))) for name in sorted(module.__all__)]
    return "\n".join([f"### `{package}`", "", summary(module), "", *rows, ""])


def page() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION, "## Stable\n", *map(section, STABLE), "## Public\n", *map(section, PUBLIC)]
    return "\n".join(parts)


def main() -> int:
    """Write or check the page."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Links between files of the repository, also where they are included in a page of the site.

Pages and the files that they include link to each other by relative paths, so that the links work in the repository,
too. Here such a path becomes the page that shows the file: ``README.md`` is the start page, ``DERIVATION.md`` of an
operator its page under ``derivations/``. Other files become downloads.
"""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "explorer/README.md": "explorer_source.md",
    "src/structattn/recipes/README.md": "recipes.md",
}
LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)\s#]+)")
DERIVATION = re.compile(r"src/structattn/operators/(\w+)/DERIVATION\.md")
INCLUDE = re.compile(r"^```\{include\} (\S+)\n(?::[^\n]*\n)*```$", re.MULTILINE)


def page_of(path: str) -> str:
    """Return the page, relative to the documentation, that shows a file of the repository, or the file itself."""
    path = DERIVATION.sub(r"docs/derivations/\1.md", path)
    return f"docs/{PAGES[path]}" if path in PAGES else path


def relinked(text: str, written_in: Path, shown_in: Path) -> str:
    """Return Markdown whose relative links, written for one folder, hold in another."""

    def relink(match: re.Match[str]) -> str:
        target = (written_in / match[2]).resolve()
        if not target.is_relative_to(ROOT) or not target.exists():
            return match[0]
        target = ROOT / page_of(target.relative_to(ROOT).as_posix())
        return match[1] + Path(os.path.relpath(target, shown_in)).as_posix()

    return LINK.sub(relink, text)


def expand(app: Sphinx, page: str, source: list[str]) -> None:
    """Include files before the parser does, with their links rewritten."""
    folder = (DOCS / page).parent

    def included(match: re.Match[str]) -> str:
        file = (folder / match[1]).resolve()
        app.env.note_dependency(str(file))
        return relinked(file.read_text(encoding="utf-8"), file.parent, folder)

    source[0] = INCLUDE.sub(included, relinked(source[0], folder, folder))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the rewriting."""
    app.connect("source-read", expand)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The frame of a report: one self-contained HTML page in a folder of its own."""

from importlib.resources import files
from pathlib import Path
from typing import Final

from structattn.report.markup import Markup, tag
from structattn.support.errors import StructattnError
from structattn.support.files import create_folder, create_folder_unflushed
from structattn.support.reading import read_bytes

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

    Raises:
        StructattnError: it has other files.
    """
    _require_report_folder(output)
    figures = output / "figures"
    create_folder(output)
    create_folder_unflushed(figures)  # its name is flushed with that of the page
    return figures


def _require_report_folder(output: Path) -> None:
    page = output / "index.html"
    if page.is_file() and SIGNATURE.encode() in read_bytes(page):
        return
    found = sorted(entry.name for entry in output.iterdir()) if output.is_dir() else []
    if found or (output.exists() and not output.is_dir()):
        raise StructattnError(
            f"{output}: expected a new folder, or one with an earlier report; found {(found or ['a file'])[0]!r}"
        )

"""The explorers that pages embed, written from the files in ``recordings/`` when the site is built."""

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from structattn.explorer import read_recording_json
from structattn.explorer.page import write_explorer

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"


def write_pages(app: Sphinx) -> None:
    """Write ``explorers/NAME.html`` for each ``recordings/NAME.json``."""
    folder = Path(app.outdir) / "explorers"
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(RECORDINGS.glob("*.json")):
        write_explorer(folder / f"{path.stem}.html", [read_recording_json(path)])


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the explorers before the pages."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

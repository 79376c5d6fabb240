"""Write docs/tutorial.ipynb, the tutorial as a notebook with its outputs: ``python tools/write_notebook.py``.

Needs ``pip install nbformat nbclient ipykernel``. Files, commands and Python of the page become cells; everything else
stays text. Where that code has changed, the notebook is run, some ten minutes, in a folder of its own; else it keeps
its outputs.
"""

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/tutorial.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
sys.path.append(str(ROOT / "tests/documentation"))

from pages import BLOCK  # noqa: E402


def cells(page: str) -> list[tuple[str, str]]:
    """Return the kind of each cell of a page, code or markdown, and its source."""
    found, end = [], 0
    for block in BLOCK.finditer(page):
        source = _code(block["language"], block["caption"], block["text"])
        if source is not None:
            found += [("markdown", page[end : block.start()]), ("code", source)]
            end = block.end()
    found.append(("markdown", page[end:]))
    return [(kind, source.strip("\n")) for kind, source in found if source.strip()]


def _code(language: str, caption: str | None, text: str) -> str | None:
    if caption:
        return f"%%writefile {caption}\n{text}"
    return {"bash": f"%%bash\n{text}", "python": text}.get(language)


def notebook(page: str) -> Any:
    """Return the notebook of a page, not yet run."""
    from nbformat import v4

    new = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell}
    found = [new[kind](source, id=f"cell-{place}") for place, (kind, source) in enumerate(cells(page))]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return v4.new_notebook(cells=found, metadata={"kernelspec": kernel})


def code_cells(of: Any) -> list[Any]:
    """Return the cells of a notebook that are run."""
    return [cell for cell in of.cells if cell.cell_type == "code"]


def run(written: Any) -> None:
    """Run a notebook in an empty folder; keep what its cells print, without progress, colours and clocks."""
    from nbclient import NotebookClient
    from nbformat import v4

    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(written, timeout=None, resources={"metadata": {"path": folder}}).execute()
    for cell in code_cells(written):
        cell.metadata.clear()
        printed = "".join(each.text for each in cell.outputs if each.get("name") == "stdout")
        plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
        cell.outputs = [v4.new_output("stream", name="stdout", text=plain)] if plain else []


def keep_outputs(written: Any, earlier: Any) -> bool:
    """Copy the outputs of an earlier notebook of the same code; return whether it has the same."""
    ours, theirs = code_cells(written), code_cells(earlier)
    if [cell.source for cell in ours] != [cell.source for cell in theirs]:
        return False
    for cell, before in zip(ours, theirs, strict=True):
        cell.outputs, cell.execution_count = before.outputs, before.execution_count
    return True


if __name__ == "__main__":
    import nbformat

    tutorial = notebook(PAGE.read_text("utf-8"))
    if not NOTEBOOK.exists() or not keep_outputs(tutorial, nbformat.read(NOTEBOOK, as_version=4)):
        run(tutorial)
    nbformat.validate(tutorial)
    NOTEBOOK.write_text(nbformat.writes(tutorial) + "\n", "utf-8")

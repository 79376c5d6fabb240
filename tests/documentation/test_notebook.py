"""The notebook of the tutorial."""

import json
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from pages import ROOT


@pytest.fixture(scope="module")
def tool():
    spec = spec_from_file_location("write_notebook", ROOT / "tools/write_notebook.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def notebook(tool):
    return json.loads(tool.NOTEBOOK.read_text("utf-8"))


def test_the_notebook_is_the_tutorial(tool, notebook):
    written = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert written == tool.cells(tool.PAGE.read_text("utf-8"))


def test_the_notebook_was_run_in_order(notebook):
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    printed = "".join("".join(output.get("text", "")) for cell in code for output in cell["outputs"])
    assert "top of the stack" in printed
    assert not any(output["output_type"] == "error" for cell in code for output in cell["outputs"])


def test_the_notebook_is_small(tool):
    assert tool.NOTEBOOK.stat().st_size < 100_000


def test_only_files_commands_and_python_become_cells(tool):
    page = "# A\n\n```text\nprinted\n```\n\n```{code-block} yaml\n:caption: a.yaml\n\nb: 1\n```\n\n```bash\nls\n```\n"
    assert tool.cells(page) == [
        ("markdown", "# A\n\n```text\nprinted\n```"),
        ("code", "%%writefile a.yaml\nb: 1"),
        ("code", "%%bash\nls"),
    ]

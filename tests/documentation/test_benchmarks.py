"""Benchmarks and scripts of results name only what the package has: none of them starts with an ImportError."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("results/*.py")])


def imported_names(script: Path) -> list[tuple[str, str]]:
    """Return module and name of every import from the package, those within functions too."""
    nodes = [node for node in ast.walk(ast.parse(script.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)]
    return [
        (node.module, alias.name)
        for node in nodes
        if node.module and node.module.partition(".")[0] == "structattn"
        for alias in node.names
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_imports_exist(script):
    missing = [
        f"{module}.{name}"
        for module, name in imported_names(script)
        if not hasattr(importlib.import_module(module), name) and not importlib.util.find_spec(f"{module}.{name}")
    ]
    assert not missing

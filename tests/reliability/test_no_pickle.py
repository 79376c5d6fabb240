"""The package never loads executable data: no pickle, no eval."""

import ast
from pathlib import Path

import pytest

import structattn

SOURCES = sorted(Path(structattn.__file__).parent.rglob("*.py"))
FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}
FORBIDDEN_CALLS = {
    "torch.load",
    "torch.save",
    "torch.jit.load",
    "torch.hub.load",
    "yaml.load",
    "yaml.load_all",
    "yaml.full_load",
    "yaml.unsafe_load",
    "np.load",
    "numpy.load",
    "eval",
    "exec",
}
NAMES = {call.rpartition(".")[2] for call in FORBIDDEN_CALLS}


def findings(source: str):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = {module, *(f"{module}.{alias.name}" for alias in node.names)}
            yield from (name for name in names if name.split(".")[0] in FORBIDDEN_MODULES or name in FORBIDDEN_CALLS)
        elif isinstance(node, ast.Attribute | ast.Name):
            name = node.attr if isinstance(node, ast.Attribute) else node.id
            if name in NAMES and ast.unparse(node) in FORBIDDEN_CALLS:
                yield ast.unparse(node)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield "allow_pickle"


def test_package_contains_no_unsafe_loading():
    found = {str(path): list(findings(path.read_text(encoding="utf-8"))) for path in SOURCES}
    assert SOURCES
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "from torch import load",
        "import torch\ntorch.load('f')",
        "f = torch.save",
        "np.fromfile(f, allow_pickle=True)",
        "eval('1')",
        "yaml.load(text)",
    ],
)
def test_scan_detects_unsafe_loading(source):
    assert list(findings(source))

"""Code in pages, examples and the notebook uses public names alone: those in the reference."""

import json
import re
from importlib import import_module
from types import ModuleType

import pytest
from pages import PAGES, ROOT

REFERENCE = "\n".join(page.read_text("utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
PUBLIC = set(re.findall(r"automodule:: (structattn[\w.]*)", REFERENCE)) | {"structattn.interop.harness"}
IMPORT = re.compile(r"^(?:>>> )? *from (structattn[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
USE = re.compile(r"\bstructattn((?:\.\w+)+)\(")  # a call, in code or in prose
ROLE = re.compile(r"\{py:\w+\}`~?(structattn[\w.]*)`")


def source_of_notebook(path):
    return "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text("utf-8"))["cells"])


SOURCES = {
    **{str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES if page.name != "changelog.md"},
    **{f"examples/{path.name}": path.read_text("utf-8") for path in (ROOT / "examples").glob("*.py")},
    "docs/tutorial.ipynb": source_of_notebook(ROOT / "docs" / "tutorial.ipynb"),
}


def imported_names(source):
    """Yield module and name of each import of the package."""
    for module, names in IMPORT.findall(source):
        for name in re.sub(r"#[^\n]*|[()]", " ", names).split(","):
            if name.strip():
                yield module, name.split()[0]


def is_public(module, name):
    if module not in PUBLIC:
        return False
    if f"{module}.{name}" in PUBLIC:
        return True
    package = import_module(module)
    return name in getattr(package, "__all__", ()) or _is_made_on_demand(package, name)


def _is_made_on_demand(package, name):
    """Return whether a name is that of a model of transformers with stacks, of which there is one for each model."""
    return package.__name__ == "structattn.interop.huggingface" and name.startswith("Stack") and hasattr(package, name)


def test_there_are_imports_to_check():
    assert len(PUBLIC) > 15
    assert sum(1 for source in SOURCES.values() for _ in imported_names(source)) > 40


@pytest.mark.parametrize("source", SOURCES)
def test_pages_import_public_names(source):
    internal = [f"{module}.{name}" for module, name in imported_names(SOURCES[source]) if not is_public(module, name)]
    assert internal == []


@pytest.mark.parametrize("source", SOURCES)
def test_pages_call_public_functions(source):
    unknown = []
    for path in USE.findall(SOURCES[source]):
        module, value = "structattn", import_module("structattn")
        for name in path.strip(".").split("."):
            if not isinstance(value, ModuleType):
                break
            if not is_public(module, name):
                unknown.append(f"structattn{path}")
                break
            module, value = f"{module}.{name}", getattr(value, name)
    assert unknown == []


@pytest.mark.parametrize("source", SOURCES)
def test_pages_link_to_the_reference(source):
    """A link names a public object by where it is exported or by where it is defined, which Sphinx knows both."""
    exported = [
        (module, name, getattr(import_module(module), name))
        for module in sorted(PUBLIC - {"structattn.interop.huggingface", "structattn.interop.harness"})
        for name in getattr(import_module(module), "__all__", ())
    ]
    known = {f"{module}.{name}" for module, name, _ in exported} | {
        f"{value.__module__}.{name}" for _, name, value in exported if hasattr(value, "__module__")
    }
    links = ROLE.findall(SOURCES[source])
    assert [link for link in links if link not in known | PUBLIC] == []

"""Imports of the package: layers import only lower layers, no cycles, no imports inside functions."""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
# From the lowest to the highest: a part imports the parts before it, but for those in WITHOUT.
LAYERS = (
    *("support", "operators", "settings", "attention", "models", "decoding", "builders", "fast", "acceleration"),
    *("huggingface", "text", "metrics", "runs", "report", "tasks", "loading", "training", "explorer", "extraction"),
    *("interop", "sweeps", "cli", "__main__"),
)
NESTED = {"models.builders": "builders", "interop.huggingface": "huggingface"}  # parts inside of other packages
WITHOUT = {
    "settings": {"operators"},
    "attention": {"settings"},
    "models": {"settings"},
    "decoding": {"settings"},
    "text": {"operators", "attention", "models", "decoding", "builders", "fast", "huggingface"},
    "metrics": {"operators", "attention", "models", "decoding", "builders", "fast", "huggingface", "text"},
    "runs": {"operators", "attention", "models", "decoding", "builders", "fast", "huggingface", "text", "metrics"},
    "report": {"operators", "attention", "models", "decoding", "builders", "fast", "huggingface"},
    "tasks": {"fast"},
    "training": {"loading"},
}
BASES = {"language_modeling", "translation"}  # topics that others may import
ALSO = {("transductions", "formal_languages"), ("recognition", "formal_languages")}  # strings of the languages


@dataclass(frozen=True)
class Import:
    """One imported name: its location, the imported module, and whether it is inside a function."""

    module: str
    line: int
    target: str
    inside_function: bool

    @property
    def description(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def targets(node: ast.stmt, package: list[str], modules: set[str]) -> list[str]:
    """Return the modules that a statement imports; ``from a import b`` imports a.b if that is a module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        return [inner if (inner := f"{base}.{alias.name}") in modules else base for alias in node.names]
    return []


def statements(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Yield all nodes below ``node`` but expressions, with whether they are inside a function."""
    inner = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child, inner
            yield from statements(child, inner)


def imports_of(source: Path) -> tuple[set[str], list[Import]]:
    """Return all modules below ``source`` and all their imports, including those of other packages."""
    files = {module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    found = []
    for module, path in files.items():
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        for node, inside in statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = targets(node, package, set(files))
                found += [Import(module, node.lineno, name, inside) for name in names]
    return set(files), found


def part(module: str) -> str:
    """Return the part of a module: its subpackage, top-level module, or entry in NESTED; "" for the root package."""
    inner = module.partition(".")[2]
    nested = [name for prefix, name in NESTED.items() if f"{inner}.".startswith(f"{prefix}.")]
    return nested[0] if nested else inner.split(".")[0]


def topic(module: str) -> str:
    """Return the topic of a module of tasks; "" elsewhere."""
    names = module.split(".")
    folder = SOURCE / "structattn" / "tasks" / names[2] if names[1:2] == ["tasks"] and len(names) > 2 else None
    return names[2] if folder is not None and folder.is_dir() else ""


def allowed(importer: str, imported: str) -> bool:
    """Return whether part ``importer`` may import part ``imported``."""
    if importer == "" or imported == importer:  # the root exports the public API lazily
        return True
    if importer not in LAYERS or imported not in LAYERS:
        return False
    return LAYERS.index(imported) < LAYERS.index(importer) and imported not in WITHOUT.get(importer, set())


def between_topics(imports: list[Import]) -> list[str]:
    """Return the imports of a topic by another, or by the modules that all topics share, that are not allowed."""
    pairs = [(topic(each.module), topic(each.target), each) for each in imports if part(each.module) == "tasks"]
    shared = "structattn.tasks.registry"
    return [
        each.description
        for importer, imported, each in pairs
        if imported
        and importer != imported
        and each.module != shared
        and not (importer and imported in BASES)
        and (importer, imported) not in ALSO
    ]


def project_imports(imports: list[Import]) -> list[Import]:
    return [found for found in imports if found.target.split(".")[0] == "structattn"]


def forbidden_imports(imports: list[Import]) -> list[str]:
    return [
        found.description for found in project_imports(imports) if not allowed(part(found.module), part(found.target))
    ]


def nested_imports(imports: list[Import]) -> list[str]:
    """Return project imports inside functions, except in the commands and of the GPU kernels."""
    return [
        found.description
        for found in project_imports(imports)
        if found.inside_function and part(found.module) != "cli" and not found.target.endswith("gpu_kernel")
    ]


def cycle(imports: list[Import]) -> list[str]:
    """Return the modules of an import cycle, or an empty list. Imports inside functions are included."""
    graph: dict[str, set[str]] = {}
    for found in project_imports(imports):
        graph.setdefault(found.module, set()).add(found.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@functools.cache
def of_the_package() -> tuple[set[str], list[Import]]:
    return imports_of(SOURCE)


@pytest.fixture
def modules() -> set[str]:
    return of_the_package()[0]


@pytest.fixture
def imports() -> list[Import]:
    return of_the_package()[1]


def test_the_package_has_modules(modules, imports):
    assert {"structattn.support.errors", "structattn.cli.app"} <= modules
    assert len(project_imports(imports)) > 20


def test_every_package_is_assigned_to_a_layer():
    folders = {path.name for path in (SOURCE / "structattn").iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders <= {*LAYERS, "interop"}


def test_imports_follow_the_layers(imports):
    assert forbidden_imports(imports) == []


def test_topics_import_only_the_topics_that_they_build_on(imports):
    assert between_topics(project_imports(imports)) == []


def test_there_are_no_import_cycles(imports):
    assert cycle(imports) == []


def test_no_project_import_is_inside_a_function(imports):
    assert nested_imports(imports) == []


def test_only_the_huggingface_package_imports_transformers(imports):
    importers = {found.module for found in imports if found.target.split(".")[0] == "transformers"}
    assert importers
    assert all(module.startswith("structattn.interop.huggingface") for module in importers)


def test_every_project_import_names_a_module_that_exists(modules, imports):
    assert [found.description for found in project_imports(imports) if found.target not in modules] == []


# The checks themselves, on sources that violate the rules.


@pytest.fixture
def offending(tmp_path: Path):
    def write(texts: dict[str, str]) -> list[Import]:
        for name, text in texts.items():
            path = tmp_path / "structattn" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return imports_of(tmp_path)[1]

    return write


@pytest.mark.parametrize(
    ("importer", "statement"),
    [
        ("support/a", "from structattn.operators import b"),
        ("operators/a", "import structattn.attention.b"),
        ("models/a", "from structattn.settings.run import RunSettings"),
        ("text/a", "from structattn.tasks import build"),
        ("text/a", "from structattn.models import b"),
        ("training/a", "from structattn.loading import load"),
        ("settings/a", "from structattn import text"),
        ("runs/a", "from ..report import page"),
        ("other/a", "from structattn.support import errors"),
    ],
)
def test_a_forbidden_import_is_detected(offending, importer, statement):
    texts = {"text/b": "", "report/page": "", "text/__init__": "", importer: statement}
    assert len(forbidden_imports(offending(texts))) == 1


def test_an_allowed_import_is_accepted(offending):
    found = offending(
        {"text/__init__": "", "text/b": "", "tasks/a": "from structattn.text import b\nfrom .. import text\n"}
    )
    assert len(project_imports(found)) == 2
    assert forbidden_imports(found) == []


def test_an_import_cycle_is_detected(offending):
    texts = {"text/a": "from structattn.text import b", "text/b": "def f():\n    from .a import c"}
    assert set(cycle(offending(texts))) == {"structattn.text.a", "structattn.text.b"}


def test_an_import_inside_a_function_is_detected_except_in_entry_points(offending):
    text = "def f():\n    if 1:\n        from structattn.support import files"
    kernel = "def f():\n    from structattn.operators.x import gpu_kernel"
    texts = {"training/a": text, "cli/a": text, "operators/a": kernel, "operators/x/gpu_kernel": ""}
    assert [found.split(":")[0] for found in nested_imports(offending(texts))] == ["structattn.training.a"]

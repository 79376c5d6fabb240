"""Imports of the package: layers import only lower layers, no cycles, no imports inside functions, no pickle."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
LAYERS = ("support", "operators", "attention", "models", "decoding", "building", "fast", "acceleration", "huggingface",
         "tasks", "training",
         "inference", "evaluation", "analysis", "reporting", "export", "trackers",
         "sweeps", "cli", "__main__")  # fmt: skip
SIDE_PACKAGES = {  # package -> packages that it may import, and the lowest layer that may import it
    "settings": ({"support"}, "building"),
    "data": ({"support"}, "tasks"),
    "metrics": ({"support"}, "tasks"),
    "runs": ({"support", "settings"}, "training"),
}
PICKLE_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}


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


def walk(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Yield all nodes below ``node`` with whether they are inside a function."""
    for child in ast.iter_child_nodes(node):
        yield child, inside
        yield from walk(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def imports_of(source: Path) -> tuple[set[str], list[Import]]:
    """Return all modules below ``source`` and all their imports, including those of other packages."""
    files = {module_name(path, source): path for path in sorted(source.rglob("*.py"))}
    found = []
    for module, path in files.items():
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        for node, inside in walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = targets(node, package, set(files))
                found += [Import(module, node.lineno, name, inside) for name in names]
    return set(files), found


def part(module: str) -> str:
    """Return the subpackage (or top-level module) of a module; "" for the root package."""
    return module.split(".")[1] if "." in module else ""


def allowed(importer: str, imported: str) -> bool:
    """Return whether subpackage ``importer`` may import from subpackage ``imported``."""
    if importer == "":  # the root exports the public API lazily
        return True
    if imported == importer:
        return True
    if importer in SIDE_PACKAGES:
        return imported in SIDE_PACKAGES[importer][0]
    if importer not in LAYERS or imported == "":
        return False
    if imported in SIDE_PACKAGES:
        return LAYERS.index(importer) >= LAYERS.index(SIDE_PACKAGES[imported][1])
    return imported in LAYERS[: LAYERS.index(importer)]


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


def pickle_imports(imports: list[Import]) -> list[str]:
    return [found.description for found in imports if found.target.split(".")[0] in PICKLE_MODULES]


def code_loading_calls(source: Path) -> list[str]:
    """Return uses of torch.load, torch.save and numpy's allow_pickle, which use pickle."""
    found = []
    for path in sorted(source.rglob("*.py")):
        for node, _ in walk(ast.parse(path.read_text(encoding="utf-8"))):
            torch_call = isinstance(node, ast.Attribute) and ast.unparse(node) in {"torch.load", "torch.save"}
            if torch_call or (isinstance(node, ast.keyword) and node.arg == "allow_pickle"):
                found.append(f"{path.relative_to(source)}:{getattr(node, 'lineno', '?')}")
    return found


MODULES, IMPORTS = imports_of(SOURCE)


def test_the_package_has_modules():
    assert {"structattn.support.errors", "structattn.cli.app"} <= MODULES
    assert len(project_imports(IMPORTS)) > 20


def test_every_package_is_assigned_to_a_layer():
    folders = {path.name for path in (SOURCE / "structattn").iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders <= {*LAYERS, *SIDE_PACKAGES}


def test_imports_follow_the_layers():
    assert forbidden_imports(IMPORTS) == []


def test_there_are_no_import_cycles():
    assert cycle(IMPORTS) == []


def test_no_project_import_is_inside_a_function():
    assert nested_imports(IMPORTS) == []


def test_nothing_imports_pickle():
    assert pickle_imports(IMPORTS) == []
    assert code_loading_calls(SOURCE) == []


def test_only_the_huggingface_package_imports_transformers():
    importers = {found.module for found in IMPORTS if found.target.split(".")[0] == "transformers"}
    assert importers
    assert all(module.startswith("structattn.huggingface.") for module in importers)


def test_every_project_import_names_a_module_that_exists():
    assert [found.description for found in project_imports(IMPORTS) if found.target not in MODULES] == []


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
        ("data/a", "from structattn.tasks import build"),
        ("settings/a", "from structattn import data"),
        ("evaluation/a", "from ..reporting import page"),
        ("other/a", "from structattn.support import errors"),
    ],
)
def test_a_forbidden_import_is_detected(offending, importer, statement):
    texts = {"data/b": "", "reporting/page": "", "data/__init__": "", importer: statement}
    assert len(forbidden_imports(offending(texts))) == 1


def test_an_allowed_import_is_accepted(offending):
    found = offending(
        {"data/__init__": "", "data/b": "", "tasks/a": "from structattn.data import b\nfrom .. import data\n"}
    )
    assert len(project_imports(found)) == 2
    assert forbidden_imports(found) == []


def test_an_import_cycle_is_detected(offending):
    texts = {"data/a": "from structattn.data import b", "data/b": "def f():\n    from .a import c"}
    assert set(cycle(offending(texts))) == {"structattn.data.a", "structattn.data.b"}


def test_an_import_inside_a_function_is_detected_except_in_entry_points(offending):
    text = "def f():\n    if 1:\n        from structattn.support import files"
    kernel = "def f():\n    from structattn.operators.x import gpu_kernel"
    texts = {"training/a": text, "cli/a": text, "operators/a": kernel, "operators/x/gpu_kernel": ""}
    assert [found.split(":")[0] for found in nested_imports(offending(texts))] == ["structattn.training.a"]


def test_a_pickle_import_is_detected(offending, tmp_path):
    text = "import torch\ndef f(p):\n    import pickle\n    torch.load(p)\n    np.load(p, allow_pickle=True)"
    assert len(pickle_imports(offending({"data/a": text}))) == 1
    assert len(code_loading_calls(tmp_path)) == 2

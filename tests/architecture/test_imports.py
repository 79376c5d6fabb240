"""Reads every import statement of the package: arrows point one way, no cycles, none hidden in functions, no pickle."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
CHAIN = ("support", "operators", "attention", "models", "decoding", "building", "huggingface", "tasks", "training",
         "inference", "evaluation", "analysis", "reporting", "sweeps", "cli", "__main__")  # fmt: skip
BESIDE = {  # packages beside the chain: what each may import, and the first package of the chain that may import it
    "settings": ({"support"}, "building"),
    "data": ({"support"}, "tasks"),
    "metrics": ({"support"}, "tasks"),
    "runs": ({"support", "settings"}, "training"),
}
HOSTILE = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}


@dataclass(frozen=True)
class Import:
    """One imported name: where it stands, the module it names, and whether it stands inside a function."""

    module: str
    line: int
    target: str
    inside_function: bool

    @property
    def place(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def targets(node: ast.stmt, package: list[str], modules: set[str]) -> list[str]:
    """The modules that an import statement names; ``from a import b`` names a.b where that is a module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        return [inner if (inner := f"{base}.{alias.name}") in modules else base for alias in node.names]
    return []


def walk(node: ast.AST, inside: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes below ``node``, each with whether a function surrounds it."""
    for child in ast.iter_child_nodes(node):
        yield child, inside
        yield from walk(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def imports_of(source: Path) -> tuple[set[str], list[Import]]:
    """All modules below ``source`` and all their imports, other packages' included."""
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
    """The folder (or file) below the package that a module lies in; "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


def allowed(importer: str, imported: str) -> bool:
    """Whether a module of part ``importer`` may import one of part ``imported``."""
    if importer == "":  # the root offers the public API lazily
        return True
    if imported == importer:
        return True
    if importer in BESIDE:
        return imported in BESIDE[importer][0]
    if importer not in CHAIN or imported == "":
        return False
    if imported in BESIDE:
        return CHAIN.index(importer) >= CHAIN.index(BESIDE[imported][1])
    return imported in CHAIN[: CHAIN.index(importer)]


def own(imports: list[Import]) -> list[Import]:
    return [found for found in imports if found.target.split(".")[0] == "structattn"]


def wrong_arrows(imports: list[Import]) -> list[str]:
    return [found.place for found in own(imports) if not allowed(part(found.module), part(found.target))]


def hidden(imports: list[Import]) -> list[str]:
    """Project imports inside functions; cli command bodies and the doors to accelerators may have them."""
    return [
        found.place
        for found in own(imports)
        if found.inside_function and part(found.module) != "cli" and not found.target.endswith("gpu_kernel")
    ]


def cycle(imports: list[Import]) -> list[str]:
    """The modules of one import cycle, or nothing. Imports inside functions count."""
    graph: dict[str, set[str]] = {}
    for found in own(imports):
        graph.setdefault(found.module, set()).add(found.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def hostile(imports: list[Import]) -> list[str]:
    return [found.place for found in imports if found.target.split(".")[0] in HOSTILE]


def code_loading_calls(source: Path) -> list[str]:
    """torch.load, torch.save and numpy's allow_pickle: pickle by another name."""
    found = []
    for path in sorted(source.rglob("*.py")):
        for node, _ in walk(ast.parse(path.read_text(encoding="utf-8"))):
            torch_call = isinstance(node, ast.Attribute) and ast.unparse(node) in {"torch.load", "torch.save"}
            if torch_call or (isinstance(node, ast.keyword) and node.arg == "allow_pickle"):
                found.append(f"{path.relative_to(source)}:{getattr(node, 'lineno', '?')}")
    return found


MODULES, IMPORTS = imports_of(SOURCE)


def test_the_package_was_found():
    assert {"structattn.support.errors", "structattn.cli.main"} <= MODULES
    assert len(own(IMPORTS)) > 20


def test_every_folder_has_its_place_in_the_picture():
    folders = {path.name for path in (SOURCE / "structattn").iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders <= {*CHAIN, *BESIDE}


def test_arrows_point_one_way():
    assert wrong_arrows(IMPORTS) == []


def test_no_cycle():
    assert cycle(IMPORTS) == []


def test_no_project_import_hides_in_a_function():
    assert hidden(IMPORTS) == []


def test_nothing_imports_pickle():
    assert hostile(IMPORTS) == []
    assert code_loading_calls(SOURCE) == []


def test_only_its_integration_imports_transformers():
    importers = {found.module for found in IMPORTS if found.target.split(".")[0] == "transformers"}
    assert importers
    assert all(module.startswith("structattn.huggingface.") for module in importers)


def test_every_project_import_names_a_module_that_exists():
    assert [found.place for found in own(IMPORTS) if found.target not in MODULES] == []


# The judges themselves, on sources made to offend.


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
def test_a_wrong_arrow_is_seen(offending, importer, statement):
    texts = {"data/b": "", "reporting/page": "", "data/__init__": "", importer: statement}
    assert len(wrong_arrows(offending(texts))) == 1


def test_a_right_arrow_is_let_through(offending):
    found = offending(
        {"data/__init__": "", "data/b": "", "tasks/a": "from structattn.data import b\nfrom .. import data\n"}
    )
    assert len(own(found)) == 2
    assert wrong_arrows(found) == []


def test_a_cycle_is_seen(offending):
    texts = {"data/a": "from structattn.data import b", "data/b": "def f():\n    from .a import c"}
    assert set(cycle(offending(texts))) == {"structattn.data.a", "structattn.data.b"}


def test_a_hidden_import_is_seen_but_not_in_commands_and_doors(offending):
    text = "def f():\n    if 1:\n        from structattn.support import files"
    door = "def f():\n    from structattn.operators.x import gpu_kernel"
    texts = {"training/a": text, "cli/a": text, "operators/a": door, "operators/x/gpu_kernel": ""}
    assert [place.split(":")[0] for place in hidden(offending(texts))] == ["structattn.training.a"]


def test_pickle_is_seen(offending, tmp_path):
    text = "import torch\ndef f(p):\n    import pickle\n    torch.load(p)\n    np.load(p, allow_pickle=True)"
    assert len(hostile(offending({"data/a": text}))) == 1
    assert len(code_loading_calls(tmp_path)) == 2

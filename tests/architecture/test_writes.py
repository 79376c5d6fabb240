"""Files are written in `support` alone, so that what survives a power loss is decided in one place."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "structattn"
WRITERS = "support/"

METHODS = {
    *("write_text", "write_bytes", "touch", "mkdir", "rmdir", "unlink", "rename", "chmod", "symlink_to"),
    *("hardlink_to", "tofile", "memmap", "savez", "savez_compressed", "savetxt", "save_file", "to_csv", "to_json_file"),
}
FUNCTIONS = {
    "os": {
        *("open", "write", "mkdir", "makedirs", "rmdir", "removedirs", "unlink", "remove", "rename", "renames"),
        *("replace", "link", "symlink", "truncate", "ftruncate", "mkfifo", "mknod", "fsync", "fdatasync", "sync"),
    },
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move", "rmtree", "make_archive", "unpack_archive"},
    "np": {"save"},
    "torch": {"save"},
}
NAMES = {"open", "replace", *METHODS}.union(*FUNCTIONS.values())
BANNED_IMPORTS = {"tempfile"}
MAY_WRITE = re.compile(rf"\b({'|'.join(NAMES | BANNED_IMPORTS)})\b")  # parsing a file takes longer than all else here
EXCEPTIONS = {
    "text/folders/sequences.py": {"memmap"},  # opened for reading
}


def mode_of(call: ast.Call, position: int) -> str:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "mode"] + call.args[position : position + 1]
    return str(given[0].value) if given and isinstance(given[0], ast.Constant) else "r"


def write_in(node: ast.AST) -> str | None:
    """Return the name of the call by which a node of the syntax tree may write a file."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = {node.module} if isinstance(node, ast.ImportFrom) else {alias.name for alias in node.names}
        return next(iter(names & BANNED_IMPORTS), None)
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Name):
        return "open" if node.func.id == "open" and set(mode_of(node, 1)) & set("wax+") else None
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in NAMES:
        return None
    name, receiver = node.func.attr, ast.unparse(node.func.value)
    if receiver in FUNCTIONS:
        return name if name in FUNCTIONS[receiver] else None
    if name == "open":
        return name if set(mode_of(node, 1 if receiver == "gzip" else 0)) & set("wax+") else None
    if name == "replace":  # of a path: that of a string takes two arguments, that of a dataclass keywords
        return name if len(node.args) == 1 and not node.keywords else None
    return name if name in METHODS else None


def direct_writes(source: Path) -> list[str]:
    """Return the calls outside `support` that may write a file."""
    found = []
    for path in sorted(source.rglob("*.py")):
        name, text = path.relative_to(source).as_posix(), path.read_text(encoding="utf-8")
        if not name.startswith(WRITERS) and MAY_WRITE.search(text):
            calls = [(node, write_in(node)) for node in ast.walk(ast.parse(text))]
            found += [f"{name}:{node.lineno}: {call}" for node, call in calls if call and call not in allowed_in(name)]
    return found


def allowed_in(name: str) -> set[str]:
    return EXCEPTIONS.get(name, set())


def test_files_are_written_in_support_alone():
    assert direct_writes(SOURCE) == []


@pytest.mark.parametrize(
    "statement",
    [
        "path.write_text('')",
        "(folder / 'a').write_bytes(b'')",
        "path.open('wb')",
        "path.open(mode='a')",
        "open(path, 'r+b')",
        "gzip.open(path, 'wb')",
        "path.replace(other)",
        "path.rename(other)",
        "path.mkdir(parents=True)",
        "os.replace(a, b)",
        "os.open(path, os.O_CREAT)",
        "shutil.rmtree(path)",
        "np.save(path, array)",
        "import tempfile",
        "from tempfile import mkdtemp",
        "safetensors.torch.save_file(tensors, path)",
    ],
)
def test_a_direct_write_is_detected(tmp_path, statement):
    for package in ("data", "support"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "a.py").write_text(f"def f():\n    {statement}\n")
    assert len(direct_writes(tmp_path)) == 1


@pytest.mark.parametrize(
    "statement", ["path.open('rb')", "open(path)", "path.open()", "text.replace('a', 'b')", "replace(run, model=m)"]
)
def test_other_calls_are_accepted(tmp_path, statement):
    (tmp_path / "a.py").write_text(statement)
    assert direct_writes(tmp_path) == []

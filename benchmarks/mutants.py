"""Mutation testing: check that a test fails when one place of the source is changed.

    python benchmarks/mutants.py profile FOLDER   # once: record calls and times of the tests
    python benchmarks/mutants.py run FOLDER [--count 300] [--seed 0] [--suite quick|slow]
    python benchmarks/mutants.py summary FOLDER

FOLDER holds a copy of the tree, in which the mutants are made, the profile, and the results, one JSON line for each
mutant. `run` can be stopped at any time and goes on where it was. `--suite quick` runs, for each mutant, the tests of
`make test` that call the mutated function, fastest files first, until one fails. `--suite slow` then runs the slow
tests of `make test-all` on the survivors alone: what they kill is what `make test` misses.
"""

import argparse
import ast
import copy
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {  # source folders below src/structattn, and the tests that mirror them
    "operators": ("tests/operators", "tests/contracts"),
    "training": ("tests/training", "tests/tasks", "tests/reliability"),
    "runs": ("tests/training", "tests/tasks", "tests/reliability"),
    "decoding": ("tests/decoding",),
}
GROUPS = {"operators": ("operators",), "training": ("training", "runs"), "decoding": ("decoding",)}
# Tests that run the source in processes of their own, where no call is seen: they come last.
IN_PROCESSES = {
    "gpu": ("tests/operators/common/test_gpu_kernels.py",),
    "training": ("tests/reliability",),
    "runs": ("tests/reliability",),
}
# No plugin of pytest, which would warn that it cannot rewrite its assertions any more.
PRELOADED = ("torch", "torch._dynamo", "torch._inductor", "pydantic", "yaml", "safetensors.torch")
TIME_LIMIT = 300  # seconds for one mutant, beside ten times what its tests take
COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
               ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip
OPERATIONS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    """One change of the source: its place, its function and the changed text of the file."""

    file: str
    line: int
    function: str
    description: str
    text: str

    @property
    def name(self) -> str:
        """Unique name, used in the results."""
        return f"{self.file}:{self.line} {self.description}"


# Mutations.


def changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield descriptions and replacements of a node of the syntax tree."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        changed = copy.deepcopy(node)
        changed.ops[0] = COMPARISONS[type(node.ops[0])]()
        yield "comparison", changed
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        changed = copy.deepcopy(node)
        changed.op = OPERATIONS[type(node.op)]()
        yield "arithmetic", changed
    elif isinstance(node, ast.BoolOp):
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and/or", changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "negation", node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield from (("constant", ast.Constant(node.value + step)) for step in (1, -1))
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        yield "condition", ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return) and node.value is not None and ast.unparse(node.value) != "None":
        yield "return value", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.AugAssign | ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "statement", ast.Pass()


def walk(node: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yield the executed nodes with the qualified names of their functions, without annotations and f-strings."""
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params", "bases"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child, function
                yield from walk(child, function)


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """Return all mutants of a file."""
    source = path.read_text(encoding="utf-8")
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node, function in walk(ast.parse(source)):
        for kind, changed in changes(node):
            place = node.test if isinstance(node, ast.If | ast.While | ast.IfExp) else node
            begin = starts[place.lineno - 1] + place.col_offset
            end = starts[place.end_lineno - 1] + place.end_col_offset
            new = ast.unparse(changed) if isinstance(changed, ast.stmt) else f"({ast.unparse(changed)})"
            text = (source.encode()[:begin] + new.encode() + source.encode()[end:]).decode()
            old = " ".join(ast.unparse(place).split())[:60]
            description = f"{kind}: {old} -> {new[:60]}"
            found.append(Mutant(str(path.relative_to(root)), place.lineno, function, description, text))
    return found


def sample(root: Path, count: int, seed: int) -> list[Mutant]:
    """Sample mutants, equally many from each group: first a function, then one of its mutants.

    With uniform sampling, a third would be in three GPU kernels, which are slowest to interpret.
    """
    chosen, generator = [], random.Random(seed)
    for names in GROUPS.values():
        files = [path for name in names for path in sorted((root / "src/structattn" / name).rglob("*.py"))]
        functions = defaultdict(list)
        for mutant in (found for path in files for found in mutants_of(path, root)):
            functions[mutant.file, mutant.function].append(mutant)
        own: dict[str, Mutant] = {}
        while len(own) < count // len(GROUPS):
            mutant = generator.choice(functions[generator.choice(list(functions))])
            own[mutant.name] = mutant
        chosen += own.values()
    generator.shuffle(chosen)
    return chosen


# Calls of the tests.


class CallRecorder:
    """Pytest plugin that records the functions that each test and its fixtures call, and the test's time."""

    def __init__(self, source: Path, output: Path) -> None:
        self.source, self.output = str(source) + "/", output.open("a", buffering=1)
        self.names: dict[CodeType, str | None] = {}
        self.calls: list[set[str]] = []
        self.failed: set[str] = set()
        self.of_fixtures: dict[int, set[str]] = {}

    def trace(self, frame: FrameType, event: str, argument: Any) -> None:
        """Record a call; returns None, so that lines are not traced."""
        code = frame.f_code
        if code not in self.names:
            own = code.co_filename.startswith(self.source)
            name = code.co_qualname.split(".<locals>")[0] if own else ""
            self.names[code] = f"{code.co_filename.removeprefix(self.source)}::{name}" if own else None
        if (name := self.names[code]) is not None:
            for calls in self.calls:
                calls.add(name)

    def watched(self) -> Iterator[set[str]]:
        """Yield a set that is filled until the generator is closed."""
        calls: set[str] = set()
        self.calls.append(calls)
        sys.settrace(self.trace)
        try:
            yield calls
        finally:
            self.calls = [other for other in self.calls if other is not calls]
            if not self.calls:
                sys.settrace(None)

    def hooks(self) -> Any:
        """Return the plugin."""
        import pytest

        recorder = self

        class _Hooks:
            @pytest.hookimpl(wrapper=True)
            def pytest_fixture_setup(self, fixturedef, request):
                watch = recorder.watched()
                recorder.of_fixtures[id(fixturedef)] = next(watch)
                try:
                    return (yield)
                finally:
                    watch.close()

            def pytest_runtest_logreport(self, report):
                if report.failed:
                    recorder.failed.add(report.nodeid)

            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_protocol(self, item, nextitem):
                watch, began = recorder.watched(), time.process_time()
                calls = next(watch)
                try:
                    return (yield)
                finally:
                    watch.close()
                    for definitions in item._fixtureinfo.name2fixturedefs.values():
                        for definition in definitions:
                            calls |= recorder.of_fixtures.get(id(definition), set())
                    row = {"test": item.nodeid, "slow": item.get_closest_marker("slow") is not None,
                           "seconds": time.process_time() - began, "calls": sorted(calls)}  # fmt: skip
                    if item.nodeid not in recorder.failed:  # failing tests detect nothing
                        recorder.output.write(json.dumps(row) + "\n")

            def pytest_unconfigure(self):
                recorder.output.close()

        return _Hooks()


def prepare(folder: Path) -> Path:
    """Copy the tree and compile it, so that no cache is written later."""
    tree = folder / "tree"
    if not tree.exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "copying", ignore_errors=True)
        (folder / "copying").mkdir()
        for name in ("src", "tests", "examples", "docs", "pyproject.toml", "README.md"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / "copying" / name)
        (folder / "copying").rename(tree)
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(tree / "src")], check=False)
    return tree


def environment(tree: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}


def profile(folder: Path) -> None:
    """Run all tests once, folder by folder; skip folders that are already recorded."""
    tree = prepare(folder)
    for name in dict.fromkeys(path for paths in reversed(PACKAGES.values()) for path in paths):
        output = profile_of(folder, name)
        if not output.exists():
            partial = output.with_suffix(".part")
            partial.unlink(missing_ok=True)
            command = [sys.executable, __file__, "record", str(partial), name]
            variables = environment(tree) | {"PYTHONDONTWRITEBYTECODE": ""}  # the tests' caches are written here
            subprocess.run(command, cwd=tree, env=variables, check=False)
            partial.rename(output)


def profile_of(folder: Path, tests: str) -> Path:
    """Return the file with the calls of these tests."""
    return folder / f"profile-{tests.replace('/', '-')}.jsonl"


def record(output: Path, tests: str) -> None:
    """Run these tests in the copy and record their calls."""
    import pytest

    recorder = CallRecorder(Path.cwd(), output)
    pytest.main(["-q", "-p", "no:cacheprovider", tests], plugins=[recorder.hooks()])


@dataclass(frozen=True)
class Profile:
    """Times of the tests, and the tests that call each function."""

    seconds: dict[str, float]
    slow: frozenset[str]
    callers: dict[str, set[str]]

    @classmethod
    def read(cls, folder: Path) -> "Profile":
        """Read the records of all test folders."""
        rows = [json.loads(line) for path in sorted(folder.glob("profile-*.jsonl")) for line in path.open()]
        callers = defaultdict(set)
        for row in rows:
            for function in row["calls"]:
                callers[function].add(row["test"])
        slow = frozenset(row["test"] for row in rows if row["slow"])
        return cls({row["test"]: row["seconds"] for row in rows}, slow, callers)

    def tests_of(self, mutant: Mutant, *, slow: bool) -> list[str]:
        """Return the quick or the slow tests that reach the mutant, in the order of execution."""
        package = Path(mutant.file).parts[2]
        mirror = PACKAGES[package]
        called = self.callers.get(f"{mutant.file}::{mutant.function}", set())
        if not called:  # a constant of a module or class, or a function that no test calls
            called = {t for name, tests in self.callers.items() if name.startswith(mutant.file + "::") for t in tests}
        unseen = IN_PROCESSES.get(package, ())
        if {"gpu", "gpu.py", "gpu_kernel.py", "registration.py"} & set(Path(mutant.file).parts):
            unseen = IN_PROCESSES["gpu"]
        chosen = {test for test in called if test.startswith(mirror)}
        chosen |= {test for test in self.seconds if test.startswith(unseen)} if unseen else set()
        chosen = {test for test in chosen if (test in self.slow) == slow}
        groups = defaultdict(list)
        for test in chosen:
            groups[test.split("::")[0]].append(test)
        cost = {file: sum(self.seconds[t] for t in tests) / len(tests) for file, tests in groups.items()}
        return sorted(
            chosen, key=lambda test: (cost[test.split("::")[0]], test.split("::")[0], self.seconds[test], test)
        )


# Running the tests on a mutant.


class Selection:
    """Pytest plugin that runs only these tests, in this order."""

    def __init__(self, tests: list[str]) -> None:
        self.places = {test: place for place, test in enumerate(tests)}

    def hooks(self) -> Any:
        """Return the plugin."""
        import pytest

        places = self.places

        class _Hooks:
            @pytest.hookimpl(trylast=True)
            def pytest_collection_modifyitems(self, items):
                items[:] = sorted((i for i in items if i.nodeid in places), key=lambda item: places[item.nodeid])

        return _Hooks()


def outcome(tree: Path, tests: list[str], limit: float, log: Path) -> str:
    """Run these tests in a fork, which has the large libraries already: killed, survived or timeout."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.chdir(tree)
        sys.path.insert(0, str(tree / "src"))
        import pytest

        files = list(dict.fromkeys(test.split("::")[0] for test in tests))
        status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *files], plugins=[Selection(tests).hooks()])
        os._exit(int(status))
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            _end_group(pid)
            code = os.waitstatus_to_exitcode(status)
            if code < 0:
                return "killed"  # the process itself broke down
            if code == 4 and b"while loading conftest" in log.read_bytes():
                return "killed"  # the package cannot be imported
            if code not in {0, 1, 2} or (code and killer(log) is None and b"Interrupted" not in log.read_bytes()):
                raise RuntimeError(f"pytest ended with {code} without the name of a test; see {log}")
            return "survived" if code == 0 else "killed"
        time.sleep(0.05)
    _end_group(pid)
    os.waitpid(pid, 0)
    return "timeout"


def _end_group(pid: int) -> None:
    """End what the tests of one mutant have started and left behind."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    return {row["mutant"]: row for row in map(json.loads, path.open())} if path.exists() else {}


def run(folder: Path, count: int, seed: int, suite: str) -> None:
    """Try the mutants that have no result yet; of the slow suite, the survivors of the quick one."""
    tree, known = prepare(folder), Profile.read(folder)
    for original in (tree / "src").rglob("*.original"):  # left by a run that was ended
        original.replace(original.with_suffix(".py"))
    os.environ.update(environment(tree))
    sys.dont_write_bytecode = True
    for name in PRELOADED:
        importlib.import_module(name)
    results = folder / f"{suite}.jsonl"
    done, quick = read_results(results), read_results(folder / "quick.jsonl")
    for mutant in sample(tree, count, seed):
        mirror = PACKAGES[Path(mutant.file).parts[2]]
        if not all(profile_of(folder, name).exists() for name in mirror):
            print(f"not profiled yet: {mutant.name}")
            continue
        survived = quick.get(mutant.name, {}).get("outcome") in {"survived", "not reached"}
        if mutant.name in done or (suite == "slow" and not survived):
            continue
        tests, began = known.tests_of(mutant, slow=suite == "slow"), time.monotonic()
        found = tried(tree, mutant, tests, known, folder / "last.log") if tests else "not reached"
        killed_by = killer(folder / "last.log") if found == "killed" else None
        row = {"mutant": mutant.name, "function": mutant.function, "outcome": found, "tests": len(tests),
               "seconds": round(time.monotonic() - began, 1), "killer": killed_by}  # fmt: skip
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{found:12s} {row['seconds']:7.1f} s  {mutant.name}", flush=True)


def tried(tree: Path, mutant: Mutant, tests: list[str], known: Profile, log: Path) -> str:
    """Write the mutant to the copy, run its tests, and restore the file."""
    path = tree / mutant.file
    original = path.read_text(encoding="utf-8")
    for cache in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        cache.unlink()
    saved = path.with_suffix(".original")
    saved.write_text(original, encoding="utf-8")
    path.write_text(mutant.text, encoding="utf-8")
    try:
        return outcome(tree, tests, TIME_LIMIT + 10 * sum(known.seconds[test] for test in tests), log)
    finally:
        saved.replace(path)


def killer(log: Path) -> str | None:
    """Return the first test or file that failed."""
    lines = log.read_text(errors="replace").splitlines()
    return next((line[:200] for line in lines if line.startswith(("FAILED", "ERROR"))), None)


def summary(folder: Path) -> None:
    """Print counts for each suite, and the survivors of the quick suite with their outcome in the slow one."""
    quick, slow = read_results(folder / "quick.jsonl"), read_results(folder / "slow.jsonl")
    print("quick:", dict(Counter(row["outcome"] for row in quick.values())))
    print("slow:", dict(Counter(row["outcome"] for row in slow.values())))
    for name, row in quick.items():
        if row["outcome"] in {"survived", "not reached"}:
            print(f"{row['outcome']}, slow tests: {slow.get(name, {}).get('outcome', 'not tried')}: {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("profile", "run", "summary"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        if name == "run":
            command.add_argument("--count", type=int, default=300)
            command.add_argument("--seed", type=int, default=0)
            command.add_argument("--suite", choices=["quick", "slow"], default="quick")
    recording = commands.add_parser("record")
    recording.add_argument("output", type=Path)
    recording.add_argument("tests")
    given = parser.parse_args()
    if given.command == "profile":
        profile(given.folder.resolve())
    elif given.command == "record":
        record(given.output, given.tests)
    elif given.command == "run":
        run(given.folder.resolve(), given.count, given.seed, given.suite)
    else:
        summary(given.folder)


if __name__ == "__main__":
    main()

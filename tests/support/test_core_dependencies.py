"""Without extras: the package and its commands, where nothing but its dependencies can be imported."""

import functools
import json
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
PROGRAM = """
import json, sys

blocked, commands = json.loads(sys.argv[1])
sys.modules |= dict.fromkeys(blocked)

import torch
import structattn
from structattn.attention import SuperpositionStackAttention
from structattn.cli.app import app

layer = SuperpositionStackAttention(d_model=8, stack_embedding_size=4)
assert layer(torch.randn(2, 5, 8)).shape == (2, 5, 8)
sys.stdout.reconfigure(line_buffering=True)
for command in commands:
    code = 0
    print("\\0", end="", file=sys.stderr, flush=True)
    try:
        app(command.split())
    except SystemExit as ended:
        code = ended.code or 0
    print("exit", code)
"""
TRAIN = "training.max_updates=1 training.num_threads=1 model.d_model=8 model.d_ff=8 model.num_heads=2"
OF_MODELS = (
    "prepare formal-language dyck --train 9 --valid 3 --test-per-length 1 --output data/dyck",
    f"train formal_language --output runs/dyck data=data/dyck model.layers=1.superposition-4.1 {TRAIN}",
    "evaluate runs/dyck",
    "prepare text --train train.txt --valid valid.txt --test test.txt --mode stream --output data/text",
    f"train text --output runs/text model.layers=1.superposition-4.1 {TRAIN}",
    "generate runs/text -n 2",
    "inspect runs/text",
    "inspect runs/text --neighbours house",
    "explore runs/dyck --output page.html",
)
OF_FIGURES = ("demo", "report runs/any --output report", "inspect runs/any --plot words.png")


def core_dependencies():
    """Return the names of the distributions that an installation without extras brings."""
    found, left = set(), tomllib.loads(PROJECT.read_text("utf-8"))["project"]["dependencies"]
    while left:
        requirement = Requirement(left.pop())
        name = canonicalize_name(requirement.name)
        if name in found or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        left += metadata.requires(name) or []
    return found


@functools.cache
def optional_modules():
    """Return the modules that are installed here, but not with the package alone."""
    core = core_dependencies()
    return [
        module
        for module, owners in metadata.packages_distributions().items()
        if module not in ("structattn", *sys.stdlib_module_names) and core.isdisjoint(map(canonicalize_name, owners))
    ]


@pytest.fixture(scope="module")
def without_extras(tmp_path_factory):
    """Exit code and standard error of commands in a process that can import no optional library."""
    pytest.importorskip("matplotlib", reason="the extras are not installed")
    folder, commands = tmp_path_factory.mktemp("core"), (*OF_MODELS, *OF_FIGURES)
    for name in ("train", "valid", "test"):
        (folder / f"{name}.txt").write_text("a house stands here\na dog runs\n" * 9)
    arguments = json.dumps([optional_modules(), commands])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    codes = [int(line.removeprefix("exit ")) for line in done.stdout.splitlines() if line.startswith("exit ")]
    return dict(zip(commands, zip(codes, done.stderr.split("\0")[1:], strict=True), strict=True))


def test_optional_libraries_are_those_of_extras():
    assert {"matplotlib", "pytest", "jaxtyping"} <= {*optional_modules()}
    assert not {"torch", "numpy", "pydantic", "yaml", "rich", "typer", "sympy"} & {*optional_modules()}


@pytest.mark.apart
def test_models_train_and_are_used_without_extras(without_extras):
    assert {command: without_extras[command] for command in OF_MODELS if without_extras[command][0]} == {}


@pytest.mark.apart
@pytest.mark.parametrize("command", OF_FIGURES)
def test_one_sentence_says_what_figures_need(without_extras, command):
    code, errors = without_extras[command]
    (line,) = errors.splitlines()
    assert code == 2
    assert line.startswith("structattn: matplotlib is not installed; pip install ")

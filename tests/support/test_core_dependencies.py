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
COMMANDS = """
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
    try:
        app(command.split())
    except SystemExit as ended:
        code = ended.code or 0
    print("exit", code)
"""
TRAIN = "training.max_updates=1 training.num_threads=1 model.d_model=8 model.d_ff=8 model.num_heads=2"


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


@pytest.fixture
def run_without_extras(tmp_path):
    """Run commands in a process that can import no optional library; return its output."""
    pytest.importorskip("matplotlib", reason="the extras are not installed")

    def run(*commands):
        arguments = json.dumps([optional_modules(), commands])
        done = subprocess.run(
            [sys.executable, "-c", COMMANDS, arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    return run


def test_optional_libraries_are_those_of_extras():
    assert {"matplotlib", "pytest", "jaxtyping"} <= {*optional_modules()}
    assert not {"torch", "numpy", "pydantic", "yaml", "rich", "typer", "sympy"} & {*optional_modules()}


def test_models_train_and_are_used_without_extras(run_without_extras, tmp_path):
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_text("a house stands here\na dog runs\n" * 9)
    commands = [
        "prepare formal-language dyck --train 9 --valid 3 --test-per-length 1 --output data/dyck",
        f"train formal_language --output runs/dyck data=data/dyck model.layers=1.superposition-4.1 {TRAIN}",
        "evaluate runs/dyck",
        "prepare text --train train.txt --valid valid.txt --test test.txt --mode stream --output data/text",
        f"train text --output runs/text model.layers=1.superposition-4.1 {TRAIN}",
        "generate runs/text -n 2",
        "inspect runs/text",
        "inspect runs/text --neighbours house",
        "explore runs/dyck --output page.html",
    ]
    output, errors = run_without_extras(*commands)
    assert output.count("exit 0") == len(commands), output + errors


def test_one_sentence_says_what_figures_need(run_without_extras):
    output, errors = run_without_extras("demo", "report runs/any --output report", "inspect runs/any --plot words.png")
    assert output == "exit 2\n" * 3
    assert len(lines := errors.splitlines()) == 3
    assert all(line.startswith("structattn: matplotlib is not installed; pip install ") for line in lines)

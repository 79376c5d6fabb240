"""The Triton kernels without a GPU: interpreted, their tests pass; compiled for a GPU, they yield code for it.

Each in a process of its own, because Triton decides once and for all whether it interprets or compiles.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OPERATORS = ["superposition_stack", "stack_pointer", "nondeterministic_stack"]
ON_MATRIX_UNITS = {"gemm", "corrections", "block_of_prefixes", "products", "step_gradients"}
NONDETERMINISTIC = {
    "mean_field",
    "scale",
    "solve",
    "readings",
    "regrowth",
    "condition",
    "sources",
    "rows",
} | ON_MATRIX_UNITS
pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def run(*command: str, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON", "PYTEST"))} | variables
    result = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("selection", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_interpreted_kernels_equal_the_definition(selection):
    tests = [str(path) for operator in OPERATORS for path in sorted((HERE.parent / operator).glob("test_*gpu*.py"))]
    root, selected = str(HERE.parents[2]), f"not gpu and {selection}"
    output = run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", selected, "--rootdir", root, *tests),
        TRITON_INTERPRET="1",
    )
    assert re.search(r"[1-9][0-9]* passed", output)
    assert "skipped" not in output


@pytest.mark.parametrize("sizes", ["one", pytest.param("all", marks=pytest.mark.slow)])
def test_kernels_compile_for_a_gpu(tmp_path, sizes):
    output = run("-W", "error", str(HERE / "compile_ahead.py"), sizes, TRITON_CACHE_DIR=str(tmp_path))
    kernels = output.splitlines()
    chunks = "operators", "forward", "adjoints", "actions_adjoint", "product", "map_adjoint", "vectors_adjoint"
    expected = {("superposition_stack", name) for name in (*chunks, "step")}
    expected |= {("nondeterministic_stack", name) for name in NONDETERMINISTIC}
    assert {tuple(line.split()[:2]) for line in kernels} == expected
    on_matrix_units = {*ON_MATRIX_UNITS, *chunks[1:]}
    for line in kernels:
        assert " 0 bytes of stack " in line, "registers are spilled"
        assert (" 0 matrix instructions" not in line) == (line.split()[1] in on_matrix_units)

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

from structattn.operators.common.gpu import launch

HERE = Path(__file__).parent
OPERATORS = ["superposition_stack", "stack_pointer", "nondeterministic_stack", "gaussian_attention"]
ON_MATRIX_UNITS = {
    *("forward", "adjoints", "actions_adjoint", "product", "map_adjoint", "vectors_adjoint"),
    *("gemm", "earlier_blocks", "corrections", "block_of_prefixes", "products", "step_gradients"),
}
pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def run(*command: str, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TRITON", "PYTEST"))} | variables
    result = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.apart
@pytest.mark.parametrize(
    ("selection", "operators"),
    [("not slow", OPERATORS), *(pytest.param("slow", [name], marks=pytest.mark.slow, id=name) for name in OPERATORS)],
)
def test_interpreted_kernels_equal_the_definition(selection, operators):
    folders = [HERE.parent / operator for operator in operators]
    assert all(any(folder.glob("test_*gpu*.py")) for folder in folders)
    tests = [str(path) for folder in folders for path in sorted(folder.glob("test_*gpu*.py"))]
    root, selected = str(HERE.parents[2]), f"not gpu and {selection}"
    output = run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", selected, "--rootdir", root, *tests),
        TRITON_INTERPRET="1",
    )
    assert re.search(r"[1-9][0-9]* passed", output)
    assert "skipped" not in output


def test_a_grid_beyond_what_cuda_allows_is_refused():
    with pytest.raises(ValueError, match=r"run: a grid of 1 x 65536 programs; CUDA allows 65535 in a row"):
        launch(run, (1, 65_536), ())


# Registers of a thread, at most, compiled by Triton 3.9 for compute capability 9.0, and bytes that spill for 8.0.
REGISTERS = {
    "superposition_stack": {
        "operators": 80,
        "forward": 202,
        "product": 218,
        "adjoints": 242,
        "actions_adjoint": 202,
        "map_adjoint": 254,
        "vectors_adjoint": 132,
        "step": 86,
    },
    "nondeterministic_stack": {
        "mean_field": 64,
        "scale": 78,
        "solve": 168,
        "gemm": 157,
        "products": 184,
        "earlier_blocks": 72,
        "corrections": 164,
        "block_of_prefixes": 158,
        "readings": 126,
        "regrowth": 80,
        "condition": 107,
        "sources": 128,
        "rows": 174,
        "step_gradients": 246,
        "uncover": 100,
        "advance": 130,
    },
    "gaussian_attention": {"band_product": 168},
}
SPILLS = {"step_gradients": 120, "product": 8, "map_adjoint": 64}
SLACK = 8  # another release of the compiler may take a few registers more


def compiled(*arguments):
    """Return operator, kernel, matrix instructions, registers and bytes of stack of each set of constants.

    Triton keeps what it compiled, and compiles a kernel again once its source, its constants or Triton itself changed.
    """
    kept = HERE.parents[2] / "build" / "triton"
    output = run("-W", "error", str(HERE / "compile_ahead.py"), *arguments, TRITON_CACHE_DIR=str(kept))
    figures = r"(\S+) (\S+) .* (\d+) matrix instructions (\d+) registers (\d+) bytes of stack"
    return [(m[1], m[2], int(m[3]), int(m[4]), int(m[5])) for m in re.finditer(figures, output)]


@pytest.mark.apart
@pytest.mark.parametrize("sizes", ["one", pytest.param("all", marks=pytest.mark.slow)])
def test_kernels_compile_for_a_gpu(sizes):
    kernels = compiled("90", sizes)
    assert {x[:2] for x in kernels} == {(operator, name) for operator, names in REGISTERS.items() for name in names}
    for operator, name, matrix, registers, stack in kernels:
        assert stack == 0, "registers are spilled"
        assert registers <= REGISTERS[operator][name] + SLACK, name
        assert (matrix > 0) == (name in ON_MATRIX_UNITS), name


@pytest.mark.slow
def test_kernels_compile_for_an_older_gpu():
    for _, name, matrix, _, stack in compiled("80", "all"):
        assert stack <= SPILLS.get(name, 0), f"{name}: {stack} bytes are spilled"
        assert (matrix > 0) == (name in ON_MATRIX_UNITS), name

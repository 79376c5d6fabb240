"""The shapes and types in the signatures of layers and models hold for what passes through them.

In a process of its own, because they are checked by a hook that must be there when these packages are imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
HOOK = "--jaxtyping-packages=structattn.attention,structattn.models,beartype.beartype"
# What gradients, causality, batches, float32, states and weights pass has the shapes of other parts of the contract.
WITH_SHAPES_OF_THEIR_OWN = "not (gradients or causal or batches or float32 or states or weights] or dtype0)"


@pytest.mark.apart
def test_signatures_tell_the_truth():
    paths = [path for name in ("contracts", "attention", "models") for path in (TESTS / name).rglob("test_*.py")]
    marked = [str(path) for path in paths if "pytest.mark.shapes" in path.read_text(encoding="utf-8")]
    options = ("-q", "-p", "no:cacheprovider", HOOK, "-m", "shapes and not slow", "-k", WITH_SHAPES_OF_THEIR_OWN)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *marked],
        env=environment, cwd=TESTS.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr

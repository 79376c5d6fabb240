"""The shapes and types in the signatures of layers and models hold for what passes through them.

In a process of its own, because they are checked by a hook that must be there when these packages are imported.
"""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
HOOK = "--jaxtyping-packages=structattn.attention,structattn.models,beartype.beartype"


def test_signatures_tell_the_truth():
    folders = [str(TESTS / name) for name in ("contracts", "attention", "models")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", HOOK, "-m", "shapes", *folders]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    result = subprocess.run(command, env=environment, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr

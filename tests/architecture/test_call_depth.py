"""Limits of the number of files and functions from the entry point of an operation to the kernel call."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "call_depth.py"


def test_a_training_step_and_a_beam_step_stay_within_their_limits():
    result = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr

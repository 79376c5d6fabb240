"""A mechanism added at run time by its layer, its entry and its builder alone."""

import subprocess
import sys
from pathlib import Path


def test_a_new_mechanism_is_trained_by_the_command_and_loaded(tmp_path):
    # Layer classes and unions are derived at import, so that registering needs a fresh process.
    script = Path(__file__).with_name("new_mechanism.py")
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("d 8: 2 mean attention, softmax + mean attention")

"""Limits of the number of files and functions from the entry point of an operation to the kernel call."""

import runpy
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "call_depth.py"


def test_a_training_step_and_a_beam_step_stay_within_their_limits(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(SCRIPT)])
    assert runpy.run_path(str(SCRIPT))["main"]() == 0, capsys.readouterr().out

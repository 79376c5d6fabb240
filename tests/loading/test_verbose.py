"""--verbose names what computes the model."""

import sys

import pytest
import torch
from typer.testing import CliRunner

from structattn.cli.app import app


@pytest.mark.parametrize(
    ("command", "run", "text"),
    [("score", "sentences", "a b\n"), ("translate", "translation", "eins\n"), ("predict", "autoregressive", "a b\n")],
)
def test_the_implementation_is_named(run_dir, monkeypatch, command, run, text):
    found = CliRunner().invoke(app, ["--verbose", command, str(run_dir(run))], input=text)
    assert found.exit_code == 0, found.output
    assert "structattn: the model, " in found.stderr
    assert ("module by module" if torch.cuda.is_available() else "in kernels that compute several") in found.stderr
    monkeypatch.setitem(sys.modules, "structattn.fast", None)
    found = CliRunner().invoke(app, ["--verbose", command, str(run_dir(run))], input=text)
    assert found.exit_code == 0, found.output
    assert " runs module by module" in found.stderr
    assert "the model, " not in CliRunner().invoke(app, [command, str(run_dir(run))], input=text).stderr

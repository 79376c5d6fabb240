"""--verbose names what computes the model."""

import sys

import pytest
import torch
from tests.program import invoke, succeed


@pytest.mark.parametrize(
    ("command", "run", "text"),
    [("score", "sentences", "a b\n"), ("translate", "translation", "eins\n"), ("predict", "autoregressive", "a b\n")],
)
def test_the_implementation_is_named(run_dir, monkeypatch, command, run, text):
    found = succeed("--verbose", command, run_dir(run), input=text)
    assert "structattn: the model, " in found.stderr
    assert ("module by module" if torch.cuda.is_available() else "in kernels that compute several") in found.stderr
    monkeypatch.setitem(sys.modules, "structattn.fast", None)
    found = succeed("--verbose", command, run_dir(run), input=text)
    assert " runs module by module" in found.stderr
    assert "the model, " not in invoke(command, run_dir(run), input=text).stderr

"""Advice on installing optional packages."""

from importlib import metadata

import pytest

from structattn.support.imports import install_command

REQUIREMENTS = [
    "numpy>=1",
    'tokenizers>=0.22; extra == "mt"',
    "sacrebleu>=2.5; extra == 'mt'",
    "structattn[mt]; extra == 'onnx'",
    "onnx>=1.19; extra == 'onnx'",
]


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("mt", "pip install 'tokenizers>=0.22' 'sacrebleu>=2.5'"),
        ("onnx", "pip install 'tokenizers>=0.22' 'sacrebleu>=2.5' 'onnx>=1.19'"),
        ("unknown", "pip install 'structattn[unknown]'"),
    ],
)
def test_the_command_names_the_packages(monkeypatch, extra, command):
    monkeypatch.setattr(metadata, "requires", lambda name: REQUIREMENTS)
    assert install_command(extra) == command

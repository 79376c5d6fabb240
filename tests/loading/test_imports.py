"""Loading a run imports what its model and its data need: no other topic, no fast forms, no training."""

import json
import subprocess
import sys

import pytest

MOST_MODULES = 118
OF_STACKS = {"sentences": 9}  # those of the layer and the operator of its stack; other kinds have none
PROGRAM = """
import json, os, sys
import structattn, torch
for folder in sys.argv[1:]:
    if os.fork() == 0:
        structattn.load(folder)
        print(json.dumps([name for name in sys.modules if name.startswith("structattn.")]), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""
TOPICS = ("chunking", "formal_languages", "language_modeling", "masked", "minimal_pairs", "parsing", "syntaxgym",
          "recognition", "transductions", "transformations", "translation")  # fmt: skip


@pytest.mark.apart
@pytest.mark.parametrize(
    "kinds",
    [
        ("stream", "translation"),
        pytest.param(("sentences", "masked text", "question", "parser"), marks=pytest.mark.slow),
    ],
)
def test_load_imports_few_modules(run_dir, kinds):
    program = [sys.executable, "-c", PROGRAM, *(str(run_dir(kind)) for kind in kinds)]
    lines = subprocess.run(program, check=True, capture_output=True, text=True).stdout.splitlines()
    for kind, modules in zip(kinds, map(json.loads, lines), strict=True):
        for package in ("training", "fast", "decoding", "explorer", "sweeps", *(f"tasks.{topic}" for topic in TOPICS)):
            assert f"structattn.{package}" not in modules, kind
        assert len(modules) <= MOST_MODULES + OF_STACKS.get(kind, 0), kind

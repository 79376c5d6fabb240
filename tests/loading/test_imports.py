"""Loading a run imports what its model and its data need: no other topic, no fast forms, no training."""

import json
import subprocess
import sys

import pytest

MOST_MODULES = 120
PROGRAM = """
import json, sys
import structattn
structattn.load(sys.argv[1])
print(json.dumps([name for name in sys.modules if name.startswith("structattn.")]))
"""
TOPICS = ("chunking", "formal_languages", "language_modeling", "masked", "minimal_pairs", "parsing", "syntaxgym",
          "transductions", "transformations", "translation")  # fmt: skip


@pytest.mark.quick("stream", "translation")
@pytest.mark.parametrize("kind", ["sentences", "stream", "masked text", "question", "parser", "translation"])
def test_load_imports_few_modules(run_dir, kind):
    program = [sys.executable, "-c", PROGRAM, str(run_dir(kind))]
    modules = json.loads(subprocess.run(program, check=True, capture_output=True, text=True).stdout)
    for package in ("training", "fast", "decoding", "explorer", "sweeps", *(f"tasks.{topic}" for topic in TOPICS)):
        assert f"structattn.{package}" not in modules
    assert len(modules) <= MOST_MODULES

"""Every file in examples/ runs as it stands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SIGNS = {
    "huggingface": ["GPT-2, nondeterministic", "RoBERTa, superposition", "saved and loaded as Stack"],
    "torch_layers": ["length 8: 100.0% of the symbols are right"],
}


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_it_runs(path, tmp_path):
    if "import transformers" in (text := path.read_text(encoding="utf-8")) or "from transformers" in text:
        pytest.importorskip("transformers", reason="transformers is not installed; pip install 'structattn[hf]'")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-W", "error", str(path)]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert all(sign in result.stdout for sign in SIGNS.get(path.stem, []))

"""Commands that write results to run folders refuse those that cannot take them, before hours of scoring."""

import json
import shutil

import pytest
from tests.program import invoke

PAIR = {"sentence_good": "a b", "sentence_bad": "b a", "UID": "order", "linguistics_term": "order", "field": "syntax"}


@pytest.mark.parametrize(
    ("command", "name"),
    [("evaluate", "scores"), ("evaluate --suite blimp --file", "analyses"), ("extract", "analyses")],
)
def test_a_folder_that_cannot_take_results_is_refused_at_once(run_dir, tmp_path, monkeypatch, command, name):
    run = shutil.copytree(run_dir("formal language"), tmp_path / "run")
    (run / name).touch()
    words = command.split()
    if "--file" in words:
        (tmp_path / "pairs.jsonl").write_text(json.dumps(PAIR) + "\n")
        words.append(str(tmp_path / "pairs.jsonl"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("structattn.loading.runs.open_run", lambda *arguments, **more: pytest.fail("opened"))
    result = invoke(words[0], run, *words[1:])
    assert result.exit_code == 1, result.output
    assert result.stderr == f"structattn: {run / name}: Not a directory\n"
    assert not (tmp_path / "extract").exists()


def test_runs_that_cannot_take_a_comparison_are_refused_at_once(run_dir, tmp_path, monkeypatch):
    base, other = (shutil.copytree(run_dir("translation"), tmp_path / name) for name in ("base", "other"))
    (other / "analyses").touch()
    compared = "structattn.tasks.translation.compare.compare_runs"
    monkeypatch.setattr(compared, lambda *arguments: pytest.fail("compared"))
    result = invoke("compare", base, other)
    assert result.exit_code == 1, result.output
    assert result.stderr == f"structattn: {other / 'analyses'}: Not a directory\n"

"""What `structattn inspect` and the JSON of other commands say about runs."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.program import invoke, succeed

from structattn.cli.listing import choices
from structattn.cli.output import print_json
from structattn.loading.evaluate import evaluate
from structattn.loading.inspection import changed_settings, inspect_run
from structattn.loading.runs import load
from structattn.settings.run import resolve_settings
from structattn.support.errors import CheckpointError, StructattnError


def document(*arguments):
    return json.loads(succeed(*arguments, "--json").stdout)


def test_runs_of_every_kind_are_inspected(run_dir, kind, kinds):
    folder = run_dir(kind)
    found, run = inspect_run(folder), load(folder)
    assert (found.task, found.model) == (kinds.tasks[kind], run.settings.model.kind)
    assert (found.ended, found.update, found.best_update, found.checkpoints) == ("updates", 1, 1, [1])
    assert found.parameters == sum(parameter.numel() for parameter in run.model.parameters())
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in run.model.named_children()}
    assert list(found.parts) == sorted(found.parts)
    assert set(found.parts) <= {*counts, "model"}
    assert found.parts.get("layers") == counts.get("layers")
    splits = {name: len(run.prepared.split(name)) for name in run.prepared.splits}
    assert {name: counts["sequences"] for name, counts in found.data["splits"].items()} == splits
    shown = invoke("inspect", folder).stdout
    assert f"{found.parameters:,}" in shown
    assert run.settings.model.kind in shown
    assert not re.search(r"│ (None|True|False) ", shown)  # settings are shown as overrides take them


def test_settings_that_differ_are_those_that_make_the_run(run_dir, kind):
    settings = load(run_dir(kind)).settings
    tree = {}
    for path, value in changed_settings(settings).items():
        *parents, last = path.split(".")
        at = tree
        for part in parents:
            at = at.setdefault(part, {})
        at[last] = value
    assert resolve_settings(lists_of(tree)) == settings


def lists_of(tree):
    """Mappings from 0, 1, ... become lists."""
    if not isinstance(tree, dict):
        return tree
    found = {key: lists_of(value) for key, value in tree.items()}
    return [found[str(i)] for i in range(len(found))] if found and all(key.isdigit() for key in found) else found


def test_defaults_are_left_out():
    tree = {"task": "formal_language", "data": "prepared"}
    assert changed_settings(resolve_settings(dict(tree))) == tree
    changed = {"model.d_model": 64, "training.schedule.kind": "warmup", "training.schedule.warmup_steps": 7}
    schedule = {"schedule": {"kind": "warmup", "warmup_steps": 7}, "max_grad_norm": None}
    found = changed_settings(resolve_settings({**tree, "model": {"d_model": 64}, "training": schedule}))
    assert {name: value for name, value in found.items() if name != "training.max_grad_norm"} == tree | changed


def test_scores_and_data_are_shown_as_they_are_now(run_dir, tmp_path):
    shutil.copytree(run_dir("sentences"), tmp_path / "run")
    scores = evaluate(tmp_path / "run", "valid", "last")
    (found,) = document("inspect", tmp_path / "run", f"{tmp_path}/run/")  # a folder given twice is shown once
    assert found["scores"]["valid"]["cross_entropy"] == scores.cross_entropy
    (evaluated,) = document("evaluate", tmp_path / "run", "--split", "valid", "--explain", 0)
    assert evaluated["cross_entropy"] == scores.cross_entropy
    card = json.loads((tmp_path / "run/run.json").read_text())
    assert found["data"]["digest"] == card["data"]["digest"]
    weights = tmp_path / "run/checkpoints/1/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(CheckpointError, match="SHA-256"):
        inspect_run(tmp_path / "run")
    with pytest.raises(StructattnError, match=r"is not a run folder: settings\.yaml is missing"):
        inspect_run(tmp_path)
    with pytest.raises(StructattnError, match="nowhere is not a run folder: it does not exist"):
        inspect_run(tmp_path / "nowhere")
    with pytest.raises(StructattnError, match=r"run\.json is not a run folder: it is a file"):
        inspect_run(tmp_path / "run/run.json")
    (tmp_path / "sweep.yaml").touch()
    with pytest.raises(StructattnError, match=r"it is that of a sweep, whose runs are in .*/runs"):
        inspect_run(tmp_path)


def test_lists_and_checks_are_one_document(monkeypatch):
    assert document("list") == json.loads(json.dumps({name: dict(found) for name, found in choices().items()}))
    found = document("doctor")
    assert {"environment", "checks"} == set(found)
    assert not any(check["wrong"] for check in found["checks"])


def test_neighbours_are_one_document(run_dir, tmp_path):
    shutil.copytree(run_dir("translation"), tmp_path / "run")
    found = document("inspect", tmp_path / "run", "--neighbours", "eins", "--count", 2)
    assert [each["word"] for each in found["neighbours"]["eins"]] != []
    assert found["agreement"] is None
    shutil.copytree(run_dir("two-stream translation"), tmp_path / "two")
    two = document("inspect", tmp_path / "two", "--neighbours", "eins", "--count", 2)
    assert set(two["neighbours"]["eins"]) == {"syntactic", "semantic"}


def test_translations_and_trees_are_lines(run_dir):
    lines = invoke("translate", run_dir("translation"), "--json", "--n-best", 2, input="eins\nzwei\n").stdout
    found = [json.loads(line)["translations"] for line in lines.splitlines()]
    expected = load(run_dir("translation")).translate(["eins", "zwei"], n=2)
    assert [[each["text"] for each in of_line] for of_line in found] == [[e.text for e in line] for line in expected]
    (tree,) = invoke("predict", run_dir("parser"), "--json", input="the cat sat .\n").stdout.splitlines()
    assert json.loads(tree)["text"] == invoke("predict", run_dir("parser"), input="the cat sat .\n").stdout.strip()


def test_json_holds_no_nan(capsys):
    @dataclass
    class Score:
        value: float
        run: Path

    print_json([Score(math.inf, Path("a/b")), {None: math.nan, "é": (1, True, None)}])
    assert json.loads(capsys.readouterr().out) == [{"value": None, "run": "a/b"}, {"None": None, "é": [1, True, None]}]


@pytest.mark.parametrize(
    ("words", "completed"), [("gen", "generate"), ("generate --temp", "--temperature"), ("prepare par", "parallel")]
)
def test_a_shell_is_told_how_words_go_on(words, completed):
    asked = {"_STRUCTATTN_COMPLETE": "complete_bash", "COMP_WORDS": f"structattn {words}"}
    environment = os.environ | asked | {"COMP_CWORD": str(len(words.split()))}
    program = "import sys; sys.argv = ['structattn']; from structattn.cli.main import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert completed in result.stdout.split()

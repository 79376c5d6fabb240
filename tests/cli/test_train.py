"""The command ``train``: settings files, overrides and limits."""

import json

import pytest
from tests.program import invoke

from structattn.runs.folder import RunFolder
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language


def train(*arguments):
    return invoke("train", *arguments)


@pytest.fixture
def recipe(tmp_path):
    prepare_formal_language(tmp_path / "data", "dyck", sizes=FormalLanguageSizes(20, 10, 2, (6, 8), (6, 8)))
    tree = {
        "task": "formal_language",
        "data": str(tmp_path / "data"),
        "model": {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": 1},
        "training": {"max_updates": 2, "validate_every": 2, "num_threads": 1},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(tree))
    return tmp_path / "recipe.yaml"


def test_a_run_is_extended_without_its_settings_file(recipe, tmp_path):
    run = tmp_path / "run"
    assert "ended (updates) after 2 updates" in train(recipe, "-o", run, "seed=7").output
    assert "had already ended (updates) after 2 updates" in train("--resume", "-o", run).output
    assert "ended (updates) after 4 updates" in train("--resume", "-o", run, "training.max_updates=4").output
    assert (
        "ended (updates) after 6 updates"
        in train(recipe, "--resume", "-o", run, "seed=7", "training.max_updates=6").output
    )
    assert [each["update"] for each in RunFolder(run).read_card()["extensions"]] == [2, 4]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["--resume", "seed=2"], 1, "seed was 1 and is now 2; only overrides of limits"),
        (["--resume", "recipe.yaml"], 1, "training.max_updates was 4 and is now 2"),  # not an override
        (
            ["--resume", "training.max_updates=3"],
            1,
            "training.max_updates=3: run has already reached this limit, after",
        ),
        (["--resume", "training.max_updats=9"], 1, "training.max_updats"),
        (
            ["training.max_updates=9"],
            2,
            "SETTINGS, a recipe or file, is missing; only --resume takes the settings from the run",
        ),
    ],
)
def test_other_changes_are_refused(recipe, tmp_path, monkeypatch, arguments, exit_code, message):
    monkeypatch.chdir(tmp_path)
    train(recipe, "-o", "run", "training.max_updates=4")
    result = train("-o", "run", *arguments)
    assert result.exit_code == exit_code
    assert message in result.stderr


def test_there_is_no_run_to_resume(tmp_path):
    result = train("--resume", "-o", tmp_path / "run", "training.max_updates=9")
    assert (result.exit_code, "contains no run to resume" in result.stderr) == (1, True)


def test_a_run_starts_from_the_weights_of_another(recipe, tmp_path):
    train(recipe, "-o", tmp_path / "first")
    result = train(recipe, "-o", tmp_path / "second", "--from", tmp_path / "first", "seed=3")
    assert result.exit_code == 0
    assert RunFolder(tmp_path / "second").read_card()["initial_weights"]["update"] == 2

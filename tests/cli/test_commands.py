"""The small commands: list, doctor, schema, prepare."""

import json

import pytest
from typer.testing import CliRunner

from structattn.cli import self_check
from structattn.cli.listing import choices
from structattn.cli.main import app
from structattn.data.formal_languages import FORMAL_LANGUAGES
from structattn.data.prepared import open_prepared
from structattn.tasks.registry import TASKS


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_list_shows_what_the_registries_hold():
    result = run("list")
    assert result.exit_code == 0
    names = {
        "softmax",
        "superposition",
        "nondeterministic",
        "sinusoidal",
        "stream",
        "plateau",
        *FORMAL_LANGUAGES,
        *TASKS,
    }
    assert [name for name in names if name not in result.output] == []


def test_every_choice_has_a_line_of_its_own():
    entries = choices()
    mechanisms = {"softmax", "superposition", "nondeterministic", "stack_pointer", "gaussian", "hard", "none"}
    assert set(entries["mechanisms (model.layers)"]) == mechanisms
    positions = {"none", "sinusoidal", "learned", "relative", "rotary", "alibi"}
    assert set(entries["positions (model.positions)"]) == positions
    assert set(entries["models (model.kind)"]) >= {"transformer", "masked", "encoder_decoder"}
    for heading, named in entries.items():
        for name, line in named.items():
            assert "\n" not in line
            assert line.strip(), (heading, name)
            assert "``" not in line


def test_schema_is_json():
    assert "training" in json.loads(run("schema").output)["properties"]


def test_doctor_checks_every_implementation():
    result = run("doctor")
    assert result.exit_code == 0
    outcomes = self_check.all_outcomes()
    assert {outcome.operator for outcome in outcomes} >= {"superposition_stack", "nondeterministic_stack"}
    assert all(outcome.error < self_check.TOLERANCE for outcome in outcomes if outcome.error is not None)
    assert all(outcome.reason for outcome in outcomes if outcome.error is None)
    assert {outcome.implementation for outcome in outcomes if outcome.error is not None} >= {"reference"}


@pytest.mark.parametrize("error", [1e-3, float("nan")])
def test_doctor_fails_where_an_implementation_is_wrong(monkeypatch, error):
    monkeypatch.setattr(self_check, "all_outcomes", lambda: [self_check.Outcome("stack", "cpu", error)])
    result = run("doctor")
    assert result.exit_code == 1
    assert "WRONG" in result.output


def test_the_self_check_sees_a_wrong_implementation():
    def call(given, choice):
        return given[0] * (1.001 if choice == "cpu" else 1.0)

    operator = self_check.Operator("scale", ((3, 4),), call)
    assert not self_check.check(operator, "reference").wrong
    assert self_check.check(operator, "cpu").wrong


def test_prepare_formal_language(tmp_path):
    folder = tmp_path / "data"
    arguments = ["marked-reversal", "-o", folder, "--train", 20, "--valid", 10, "--test-per-length", 2,
                 "--train-lengths", 3, 9, "--test-lengths", 3, 11, "--seed", 5]  # fmt: skip
    result = run("prepare", "formal-language", *arguments)
    assert result.exit_code == 0, result.output
    assert "formal_language, 6 symbols; train 20 sequences" in result.output
    prepared = open_prepared(folder)
    assert prepared.header.extra["seed"] == 5
    assert prepared.header.splits["test"].sequences == 10
    again = run("prepare", "formal-language", *arguments)
    assert again.exit_code == 1
    assert "not empty" in again.stderr


def test_an_unknown_language_is_bad_usage(tmp_path):
    result = run("prepare", "formal-language", "latin", "-o", tmp_path / "data")
    assert result.exit_code == 2
    assert "hardest-cfl" in result.stderr


def test_prepare_text(tmp_path):
    (tmp_path / "train.txt").write_text("a b c\nb\n\n")
    (tmp_path / "valid.txt").write_text("c a\n")
    arguments = ["prepare", "text", "--train", tmp_path / "train.txt", "--valid", tmp_path / "valid.txt"]
    refused = run(*arguments, "-o", tmp_path / "data")
    assert refused.exit_code == 1
    assert "train.txt:3" in refused.stderr
    result = run(*arguments, "-o", tmp_path / "data", "--skip-empty")
    assert result.exit_code == 0, result.output
    assert open_prepared(tmp_path / "data").kind == "sentences"
    assert run(*arguments, "-o", tmp_path / "stream", "--mode", "stream", "--level", "character").exit_code == 0
    assert open_prepared(tmp_path / "stream").tokenizer.level == "character"

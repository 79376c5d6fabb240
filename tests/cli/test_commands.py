"""The small commands: list, doctor, schema, prepare."""

import json
import sys

import pytest
from tests.program import invoke, succeed

from structattn.cli import self_check
from structattn.cli.doctor import environment
from structattn.cli.listing import choices
from structattn.text.folders.prepared import open_prepared


def test_list_shows_every_choice_on_a_line_of_its_own():
    lines = [line.split() for line in succeed("list").output.splitlines()]
    expected = [
        words
        for heading, entries in choices().items()
        for words in (heading.split(), *([*name.split(), *line.split()] for name, line in entries.items()), [])
    ]
    assert lines == expected


def test_every_choice_has_a_description():
    entries = choices()
    mechanisms = {"softmax", "superposition", "nondeterministic", "stack_pointer", "gaussian", "hard", "none"}
    mechanisms |= {"delta_product", "stack_trans"}
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
    assert "training" in json.loads(invoke("list", "--schema", "run").output)["properties"]
    sweep = json.loads(invoke("list", "--schema", "sweep").output)["properties"]
    assert {"base", "grid", "restarts"} <= set(sweep)
    assert sweep["base"]["type"] == ["object", "string"]  # a file's name will do
    refused = invoke("list", "recipes", "--schema", "run")
    assert refused.exit_code == 2
    assert "recipes: --schema prints the schema of all settings" in refused.output
    refused = invoke("list", "recipes", "text", "--json")
    assert refused.exit_code == 2
    assert "text: a recipe is printed as YAML" in refused.output


def test_doctor_checks_every_implementation(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert "│ stack_rnn, nondeterministic │" in succeed("doctor").stdout  # names of operators are not wrapped
    outcomes = self_check.all_outcomes()
    assert {outcome.operator for outcome in outcomes} >= {"superposition_stack", "nondeterministic_stack"}
    assert all(outcome.error < self_check.TOLERANCE for outcome in outcomes if outcome.error is not None)
    assert all(outcome.reason for outcome in outcomes if outcome.error is None)
    assert {outcome.implementation for outcome in outcomes if outcome.error is not None} >= {"reference"}


@pytest.mark.parametrize(
    ("reason", "shown"),
    [(None, "float32; bf16"), ("Old CPU lacks it", "float32; not bf16, which is refused: Old CPU lacks it")],
)
def test_doctor_shows_the_fast_precisions(monkeypatch, reason, shown):
    monkeypatch.setattr("structattn.support.devices.slow_bf16", lambda device: reason)
    assert environment()["fast precisions"] == shown


@pytest.mark.parametrize("error", [1e-3, float("nan")])
def test_doctor_fails_if_an_implementation_is_wrong(monkeypatch, error):
    monkeypatch.setattr(self_check, "all_outcomes", lambda: [self_check.Outcome("stack", "cpu", error)])
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "WRONG" in result.output


def test_the_self_check_detects_a_wrong_implementation():
    def call(given, choice):
        return given[0] * (1.001 if choice == "cpu" else 1.0)

    operator = self_check.Operator("scale", ((3, 4),), call)
    assert not self_check.check(operator, "reference").wrong
    assert self_check.check(operator, "cpu").wrong


def test_prepare_formal_language(tmp_path):
    folder = tmp_path / ":cat:[x]"  # :cat: is a picture in markup
    arguments = ["marked-reversal", "-o", folder, "--train", 20, "--valid", 10, "--test-per-length", 2,
                 "--train-lengths", 3, 9, "--test-lengths", 3, 11, "--seed", 5]  # fmt: skip
    result = succeed("prepare", "formal-language", *arguments)
    assert result.output.startswith(f"{folder}: formal_language, 6 symbols; train 20 sequences")
    prepared = open_prepared(folder)
    assert prepared.header.extra["seed"] == 5
    assert prepared.header.splits["test"].sequences == 10
    again = invoke("prepare", "formal-language", *arguments)
    assert again.exit_code == 1
    assert "not empty" in again.stderr


def test_an_unknown_language_is_bad_usage(tmp_path):
    result = invoke("prepare", "formal-language", "latin", "-o", tmp_path / "data")
    assert result.exit_code == 2
    assert "hardest-cfl" in result.stderr


def test_prepare_text(tmp_path):
    (tmp_path / "train.txt").write_text("a b c\nb\n\n")
    (tmp_path / "valid.txt").write_text("c a\n")
    arguments = ["prepare", "text", "--train", tmp_path / "train.txt", "--valid", tmp_path / "valid.txt"]
    refused = invoke(*arguments, "-o", tmp_path / "data")
    assert refused.exit_code == 1
    assert "train.txt:3" in refused.stderr
    succeed(*arguments, "-o", tmp_path / "data", "--skip-empty")
    assert open_prepared(tmp_path / "data").kind == "sentences"
    assert invoke(*arguments, "-o", tmp_path / "stream", "--mode", "stream", "--level", "character").exit_code == 0
    assert open_prepared(tmp_path / "stream").header.tokenizer["level"] == "character"


def pairs(folder, count=6):
    """Write pairs as two files and as a TSV file."""
    rows = [(f"das {number}. haus", f"the {number}th house") for number in range(count)]
    for name, text in (
        ("a.de", "".join(f"{row[0]}\n" for row in rows)),
        ("a.en", "".join(f"{row[1]}\n" for row in rows)),
        ("a.tsv", "".join("\t".join(row) + "\n" for row in rows)),
    ):
        (folder / name).write_text(text)
    return [folder / "a.de", folder / "a.en"], folder / "a.tsv"


def test_a_vocabulary_size_for_words_is_refused(tmp_path):
    (tmp_path / "text").write_text("a b\n")
    files = ["--train", tmp_path / "text", "--valid", tmp_path / "text", "--output", tmp_path / "data"]
    result = invoke("prepare", "text", *files, "--vocabulary-size", 32000)
    assert result.exit_code == 2
    assert "--vocabulary-size applies to subwords, not to --level word; see --max-symbols" in result.stderr
    pairs = ["--train", tmp_path / "text", tmp_path / "text", "--hold-out", "0.5", "--level", "word"]
    result = invoke("prepare", "parallel", *pairs, "--vocabulary-size", 32000, "--output", tmp_path / "data")
    assert result.exit_code == 2
    assert "--vocabulary-size applies to subwords, not to --level word; see --vocabulary-threshold" in result.stderr
    result = invoke("prepare", "trees", *files, "--vocabulary-size", 32000)
    assert result.exit_code == 2
    assert "--vocabulary-size applies to subwords, not to --level word; see --vocabulary-threshold" in result.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("text --train a --valid a --marker start", "--marker start applies to bpe, not to --level word"),
        ("parallel --train a a --valid a a --level sentencepiece-bpe --marker none",
         "--marker none applies to bpe, not to --level sentencepiece-bpe"),
        ("text --train a --valid a --tokenizer b --level byte",
         "--tokenizer b takes the place of a level; expected no --level byte"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_the_level_are_refused(tmp_path, options, message):
    result = invoke("prepare", *options.split(), "--output", tmp_path / "data")
    assert (result.exit_code, result.stderr) == (2, f"structattn: {message}\n")


def test_prepare_parallel(tmp_path):
    two, table = pairs(tmp_path)
    arguments = ["prepare", "parallel", "--train", *two, "--valid-tsv", table, "--level", "word"]
    result = succeed(*arguments, "-o", tmp_path / "data", "--no-joint")
    summary = "parallel, 12 source and 12 target symbols; train 6 pairs of 18 and 18 tokens, valid 6 pairs"
    assert summary in result.output
    result = succeed(
        *arguments, "-o", tmp_path / "joint", "--max-characters", 200, "--max-ratio", 4, "--drop-full-stops"
    )
    assert "parallel, 20 symbols" in result.output
    prepared = open_prepared(tmp_path / "joint")
    assert prepared.header.extra["filters"]["max_ratio"] == 4.0
    assert prepared.header.tokenizer["level"] == "word"
    assert prepared.header.tokenizer["nfkc"] is True


def test_prepare_parallel_from_training_files_only(tmp_path):
    two, table = pairs(tmp_path, 60)
    arguments = ["prepare", "parallel", "--train", *two, "--level", "word", "-o", tmp_path / "data"]
    refused = invoke(*arguments)
    assert refused.exit_code == 2
    assert "--hold-out 0.02 to hold out some of the training pairs" in " ".join(refused.output.split())
    succeed(*arguments, "--hold-out", 0.3)
    assert set(open_prepared(tmp_path / "data").splits) == {"train", "valid", "test"}
    refused = invoke(*arguments, "--hold-out", 0.3, "--valid-tsv", table, "--test-tsv", table)
    assert refused.exit_code == 2
    assert "--hold-out has no effect" in refused.output


def test_prepare_parallel_from_standard_input_with_subwords(tmp_path):
    pytest.importorskip("tokenizers", reason="the extra mt is not installed")
    two, table = pairs(tmp_path)
    arguments = [
        "prepare",
        "parallel",
        "--train-tsv",
        "-",
        "--valid",
        *two,
        "--vocabulary-size",
        9,
        "--no-nfkc",
        "--marker",
        "start",
    ]
    arguments += ["--vocabulary-threshold", 2, "--sample", 5, "-o", tmp_path / "data"]
    succeed(*arguments, input=table.read_text())
    prepared = open_prepared(tmp_path / "data")
    assert len(prepared.pairs("train")) == 5
    described = {"level": "bpe", "joint": True, "size": 9, "threshold": 2, "marker": "start", "nfkc": False}
    assert described.items() <= prepared.header.tokenizer.items()


def test_invalid_parallel_text_is_reported_with_file_and_line(tmp_path):
    two, table = pairs(tmp_path)
    two[1].write_text(two[1].read_text() + "one more\n")
    result = invoke(
        "prepare", "parallel", "--train", *two, "--valid-tsv", table, "--level", "word", "-o", tmp_path / "data"
    )
    assert result.exit_code == 1
    assert f"{two[1]}:7:1: has no counterpart" in result.stderr
    assert not (tmp_path / "data").exists()


def test_missing_and_contradicting_inputs_are_reported(tmp_path):
    two, table = pairs(tmp_path)
    for arguments, reason in (
        (["--train", *two], "neither --valid nor --valid-tsv is given"),
        (["--valid", *two], "neither --train nor --train-tsv is given"),
        (["--train", *two, "--train-tsv", table, "--valid", *two], "--train and --train-tsv are both given"),
        (["--train", two[0]], f"--train {two[0]} -o: expected two files, source and target"),
    ):
        result = invoke("prepare", "parallel", *arguments, "-o", tmp_path / "data")
        assert result.exit_code == 2
        assert reason in result.stderr


def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch):
    two, _ = pairs(tmp_path)
    for library, level in (("tokenizers", "bpe"), ("sentencepiece", "sentencepiece-unigram")):
        monkeypatch.setitem(sys.modules, library, None)
        result = invoke(
            "prepare", "parallel", "--train", *two, "--valid", *two, "--level", level, "-o", tmp_path / "data"
        )
        assert result.exit_code == 2
        assert "pip install 'tokenizers>" in result.stderr

"""Comparison of runs with a base: the stored results equal sacrebleu's."""

import hashlib
import json

import pytest
from tests.program import invoke, succeed

from structattn.metrics.translation import corpus_scores
from structattn.report.runs import read_run
from structattn.report.style import line_style
from structattn.report.tables import OF_TWO_RUNS
from structattn.runs.folder import RunFolder
from structattn.runs.store import read_translations
from structattn.settings.run import resolve_settings
from structattn.support.errors import DataError
from structattn.support.files import sha256_of_file
from structattn.support.json_files import write_json
from structattn.tasks.translation.compare import compare_runs_by_bin
from structattn.tasks.translation.comparison_report import comparison_sections
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared

REFERENCES = [" ".join(["the", "cat", "sees", "a", "dog", "in", "this", "house", "now"][:size]) for size in
              (4, 5, 6, 7, 8, 9, 4, 5, 6, 7)]  # fmt: skip
OFF_DIAGONALITY = {"encoder": [0.1 * n for n in range(10)], "decoder": [0.0] * 10}

CARD = {"format_version": 1, "version": "0.1.0", "task": "translation", "seed": 1, "parameters": 1,
        "vocabulary_size": 5, "settings_digest": "s", "environment": {}, "hardware": {"threads": 1},
        "data": {"path": "p", "kind": "parallel", "digest": "d"}, "result": None}  # fmt: skip


def card_of(data):
    return CARD | {"data": {"path": str(data), "kind": "parallel", "digest": open_prepared(data).digest}}


def prepare(folder, paths, **changes):
    files = dict.fromkeys(("train", "valid", "test"), paths) | changes
    prepare_parallel(folder, files, tokenizer=TokenizerSettings("word", joint=False))


@pytest.fixture
def workspace(tmp_path):
    """Return a folder with prepared data and runs that have translations but no model."""
    splits = {}
    for split in ("train", "test"):
        splits[split] = [tmp_path / f"{split}.{side}" for side in ("de", "en")]
        for path in splits[split]:
            path.write_text("".join(line + "\n" for line in REFERENCES))
    prepare(tmp_path / "data", splits["test"], **splits)
    settings = resolve_settings({"task": "translation", "data": str(tmp_path / "data"),
                                 "model": {"kind": "encoder_decoder"}})  # fmt: skip
    for name, change in (("base", "dog"), ("better", "nothing"), ("worse", "cat")):
        (tmp_path / name / "scores").mkdir(parents=True)
        RunFolder(tmp_path / name).write_settings(settings)
        RunFolder(tmp_path / name).write_card(card_of(tmp_path / "data"))
        lines = [line.replace(change, "bird") for line in REFERENCES]
        (tmp_path / name / "scores/test.translations.txt").write_text("".join(line + "\n" for line in lines))
    return tmp_path


def attended(workspace, **content):
    (workspace / "base/analyses").mkdir()
    write_json(workspace / "base/analyses/test-attention.json", "analysis", {"split": "test", **content})


def test_runs_are_compared_with_a_base_and_results_are_written(workspace):
    attended(workspace, off_diagonality=OFF_DIAGONALITY)
    arguments = [str(workspace / name) for name in ("base", "better", "worse")]
    shown = succeed("compare", *arguments, "--samples", "50")
    assert shown.output.count("BLEU by off-diagonality, encoder") == 2
    for name, sign in (("better", 1), ("worse", -1)):
        kept = json.loads((workspace / name / "analyses/test-against-base.json").read_text())
        assert (kept["kind"], kept["base"], kept["split"]) == ("comparison", "base", "test")
        lines = (workspace / name / "scores/test.translations.txt").read_text().split("\n")[:-1]
        written = (workspace / name / "scores/test.translations.txt").read_bytes()
        assert kept["translations"]["run"] == hashlib.sha256(written).hexdigest() != kept["translations"]["base"]
        assert kept["whole"]["BLEU"]["second"] == pytest.approx(corpus_scores(lines, REFERENCES)["BLEU"].value)
        by = {}
        for each in kept["bins"]:
            by.setdefault((each["attribute"], each["binning"]), []).append(each)
        assert [len(rows) for rows in by.values()] == [5, 5, 5, 1, 1]
        assert {sum(row["sentences"] for row in rows) for rows in by.values()} == {10}
        (everything,) = by["off-diagonality, decoder", "equal count"]
        assert everything["difference"] == pytest.approx(
            kept["whole"]["BLEU"]["second"] - kept["whole"]["BLEU"]["first"]
        )
        assert sign * everything["difference"] > 0


def test_a_bootstrap_of_few_lines_is_warned_of(workspace):
    shown = invoke("compare", workspace / "base", workspace / "better", "--samples", "40", "--json")
    assert len(json.loads(shown.stdout)) == 1
    assert "warning: the split has 10 examples to resample" in shown.stderr


def test_without_attention_analysis_runs_are_compared_by_length_only(workspace):
    bins = compare_runs_by_bin(workspace / "base", workspace / "better", "test", samples=2)
    assert {each.attribute for each in bins} == {"reference length"}


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\n", "is damaged, run `structattn evaluate` again"), (b"a cat\n", "holds 1 translations of 10 lines")],
)
def test_damaged_translations_are_rejected_with_the_file_name(workspace, content, message):
    path = workspace / "better/scores/test.translations.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path}.*{message}"):
        compare_runs_by_bin(workspace / "base", workspace / "better", "test", samples=2)


def test_translations_that_changed_after_they_were_scored_are_rejected(tmp_path):
    path = tmp_path / "scores" / "test.translations.txt"
    path.parent.mkdir()
    path.write_text("a cat\na dog\n")
    write_json(tmp_path / "scores" / "test.json", "scores", {"translations_digest": sha256_of_file(path)})
    assert read_translations(tmp_path, "test", 2) == ["a cat", "a dog"]
    path.write_text("a cat\na hog\n")
    with pytest.raises(DataError, match=f"{path}.*changed since it was scored; run `structattn evaluate` again"):
        read_translations(tmp_path, "test", 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"off_diagonality": {"encoder": [0.5]}}, "1 values for 10 sentences; run `structattn evaluate` again"),
        ({}, "expected the off-diagonality"),
        ({"off_diagonality": {"encoder": ["x"]}}, "expected the off-diagonality"),
        ({"off_diagonality": [1]}, "expected the off-diagonality"),
    ],
)
def test_a_damaged_attention_analysis_is_rejected(workspace, content, message):
    attended(workspace, **content)
    with pytest.raises(DataError, match=message):
        compare_runs_by_bin(workspace / "base", workspace / "better", "test", samples=2)


def other_data(folder):
    """Data with as many lines in every split."""
    paths = [folder / f"other.{side}" for side in ("de", "en")]
    for path in paths:
        path.write_text("".join(line[::-1] + "\n" for line in REFERENCES))
    prepare(folder / "other", paths)
    return folder / "other"


def test_runs_are_not_compared_on_other_data_than_theirs(workspace):
    data = other_data(workspace)
    words = ["compare", *[str(workspace / name) for name in ("base", "better")], "--samples", "40"]
    shown = invoke(*words, f"data={data}")
    digests = [open_prepared(folder).digest for folder in (workspace / "data", data)]
    assert shown.exit_code == 1, shown.output
    expected = "{}: was trained on data with digest {}; that of {} is {}"
    assert expected.format(workspace / "base", digests[0], data, digests[1]) in shown.output
    assert not (workspace / "better/analyses").exists()

    data.rename(workspace / "moved")
    (workspace / "data").rename(data)
    shown = invoke(*words)
    assert f"{workspace / 'data'}: the data of {workspace / 'base'}: no such folder" in shown.output
    assert "as data=FOLDER" in shown.output
    assert invoke(*words, f"data={data}").exit_code == 0


@pytest.mark.parametrize("order", [("base", "text"), ("text", "base")])
def test_runs_of_different_tasks_are_not_compared(workspace, order):
    settings = resolve_settings({"task": "language_modeling", "data": str(workspace / "data")})
    (workspace / "text").mkdir()
    RunFolder(workspace / "text").write_settings(settings)
    RunFolder(workspace / "text").write_card(CARD)
    shown = invoke("compare", *[workspace / name for name in order])
    assert shown.exit_code == 2
    wrong = ("text", "language_modeling") if order[0] == "base" else ("base", "translation")
    expected = "expected all runs to have language_modeling, or all translation"
    assert f"{workspace / wrong[0]}: has task '{wrong[1]}'; {expected}" in shown.output


def test_a_comparison_of_two_runs_says_that_it_is_not_one_of_models(workspace):
    shown = invoke("compare", workspace / "base", workspace / "better", "--samples", "40")
    assert "holds for these two runs, not for their models" in " ".join(shown.output.split())
    runs = [(run, line_style(0)) for run in map(read_run, (workspace / "base", workspace / "better"))]
    assert OF_TWO_RUNS in comparison_sections(runs, "x", workspace)

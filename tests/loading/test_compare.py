"""Comparison of language models: the cross-entropies are those of evaluation, and unlike runs are refused."""

import json
import re
import shutil

import pytest
from tests.program import invoke, succeed

import structattn
from structattn.explorer.recording_files import read_recorded_runs
from structattn.report.style import line_style
from structattn.report.tables import OF_TWO_RUNS
from structattn.settings.run import resolve_settings
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.report import likelihood_sections
from structattn.tasks.language_modeling.settings import TextSettings

TEXT = "".join(f"the {noun} sees the {other}\n" for noun in "abcdefg" for other in "abcdefg")
STREAM = {"kind": "stream", "sequence_length": 16, "batch_size": 4}


@pytest.fixture(scope="module", params=["sentences", "stream"])
def runs(request, tmp_path_factory):
    """Return the folder of two trained runs, ``one`` and ``two``, of one layer and of two."""
    folder, mode = tmp_path_factory.mktemp(request.param), request.param
    (folder / "text").write_text(TEXT)
    paths = [folder / "text"] * 3
    prepare_language_modeling(folder / "data", *paths, TextSettings("word", mode, False))
    batches = STREAM if mode == "stream" else {"kind": "tokens", "max_tokens": 64}
    for name, layers in (("one", "1"), ("two", "2")):
        tree = {
            "task": "language_modeling",
            "data": str(folder / "data"),
            "model": {"d_model": 8, "d_ff": 8, "num_heads": 1, "layers": layers},
            "training": {"batches": batches, "max_updates": 4},
        }
        structattn.train(resolve_settings(tree), folder / name)
    return folder


def test_the_difference_is_that_of_the_evaluated_cross_entropies(runs):
    scores = {name: structattn.evaluate(runs / name, baselines=False).cross_entropy for name in ("one", "two")}
    shown = succeed("compare", runs / "one", runs / "two", "--samples", "100")
    kept = json.loads((runs / "two/analyses/test-against-one.json").read_text())
    assert (kept["kind"], kept["base"], kept["split"]) == ("likelihood_comparison", "one", "test")
    assert kept["first"] == pytest.approx(scores["one"], rel=1e-12)
    assert kept["second"] == pytest.approx(scores["two"], rel=1e-12)
    assert kept["lower"] <= kept["difference"] <= kept["upper"]
    assert f"{kept['difference']:+.4f}" in shown.output
    page = likelihood_sections([(run, line_style(0)) for run in read_recorded_runs([runs / "one", runs / "two"])])
    assert f"{kept['difference']:+.4f}" in page


def test_a_folder_given_twice_is_read_once(runs, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(runs / name, tmp_path / name)
    succeed("compare", *(tmp_path / name for name in ("one", "two", "one")))
    assert [path.parts[-3:] for path in tmp_path.glob("*/analyses/*.json")] == [
        ("two", "analyses", "test-against-one.json")
    ]
    refused = invoke("compare", tmp_path / "one", tmp_path / "one")
    assert refused.exit_code == 2
    assert "expected a base run and other runs to compare with it" in " ".join(refused.output.split())


def test_examples_beyond_the_learned_positions_are_refused_as_in_evaluation(tmp_path):
    for name, text in {"short": "a b\n", "long": "a b a b a b a b a b\n"}.items():
        (tmp_path / name).write_text(text * 4)
    files = (tmp_path / "short", tmp_path / "short", tmp_path / "long")
    prepare_language_modeling(tmp_path / "data", *files, TextSettings("word", "sentences", False))
    for name in ("one", "two"):
        model = {"d_model": 8, "d_ff": 8, "num_heads": 1, "layers": 1}
        model["positions"] = {"kind": "learned", "max_positions": 4}
        tree = {"task": "language_modeling", "data": str(tmp_path / "data"), "model": model}
        tree["training"] = {"batches": {"kind": "tokens", "max_tokens": 64}, "max_updates": 1}
        structattn.train(resolve_settings(tree), tmp_path / name)
    shown = invoke("compare", tmp_path / "one", tmp_path / "two")
    assert shown.exit_code == 1
    assert "test example 0 has 11 tokens; the model has 4 learned positions" in " ".join(shown.stderr.split())


def test_a_folder_that_cannot_be_written_is_refused_before_any_run_is_scored(runs, tmp_path, monkeypatch):
    shutil.copytree(runs / "two", tmp_path / "run", ignore=shutil.ignore_patterns("analyses"))
    (tmp_path / "run/analyses").touch()
    monkeypatch.setattr("structattn.loading.compare.open_run", None)
    refused = invoke("compare", runs / "one", tmp_path / "run")
    assert (refused.exit_code, "run/analyses: Not a directory" in refused.output) == (1, True), refused.exception


def test_a_run_of_another_task_is_refused_by_its_task(runs, tmp_path):
    sizes = FormalLanguageSizes(4, 2, 1, (2, 4), (2, 4))
    prepare_formal_language(tmp_path / "data", "dyck", "faithful", seed=1, sizes=sizes)
    tree = {"task": "formal_language", "data": str(tmp_path / "data"), "training": {"max_updates": 1},
            "model": {"d_model": 8, "d_ff": 8, "num_heads": 1, "layers": "1"}}  # fmt: skip
    structattn.train(resolve_settings(tree), tmp_path / "run")
    refused = invoke("compare", runs / "one", tmp_path / "run")
    assert refused.exit_code == 2
    assert (
        "has task 'formal_language'; expected all runs to have language_modeling, or all translation" in refused.output
    )
    assert "`structattn compare --by model` compares runs of any task" in refused.output


def test_runs_that_predict_other_tokens_are_refused(runs, tmp_path):
    (tmp_path / "text").write_text(TEXT + "the a sees the z\n")
    prepare_language_modeling(tmp_path / "data", *[tmp_path / "text"] * 3, TextSettings("word", "sentences", False))
    tree = {"task": "language_modeling", "data": str(tmp_path / "data"), "training": {"max_updates": 1},
            "model": {"d_model": 8, "d_ff": 8, "num_heads": 1, "layers": "1"}}  # fmt: skip
    structattn.train(resolve_settings(tree), tmp_path / "run")
    refused = invoke("compare", runs / "one", tmp_path / "run")
    assert refused.exit_code == 2
    assert "expected the same tokens" in refused.output


def test_a_comparison_of_two_runs_says_that_it_is_not_one_of_models(runs):
    shown = " ".join(invoke("compare", runs / "one", runs / "two", "--samples", "40").output.split())
    assert "holds for these two runs, not for their models" in shown
    assert re.search(r"\bone\b.*\btwo\b", shown)
    page = likelihood_sections([(run, line_style(0)) for run in read_recorded_runs([runs / "one", runs / "two"])])
    assert OF_TWO_RUNS in page

"""Analyses of translation runs: figures and tables show the numbers of the run folder."""

import hashlib
import re

import pytest

from structattn.cli.report_page import write_report
from structattn.report.runs import read_run
from structattn.report.style import line_style
from structattn.support.errors import DataError
from structattn.support.json_files import write_json
from structattn.tasks.translation.comparison_report import differences_plot
from structattn.tasks.translation.contrastive_report import _distances_plot, _types_plot
from structattn.tasks.translation.report import locality_plot

QUINTILES = [(1, 4), (5, 5), (6, 9), (10, 12), (13, 31)]


def attention(*kinds):
    heads = [{"kind": kind, "layer": layer, "head": head, "mechanism": "softmax", "positions": 9,
              "mean": -layer - head / 10, "absolute": layer + 1.25}
             for kind in kinds for layer in (0, 1) for head in (0, 1)]  # fmt: skip
    return {"kind": "attention", "split": "test", "heads": heads, "off_diagonality": {}}


KINDS = (("reference length", "equal count"), ("off-diagonality, decoder", "equal count"))
TRANSLATIONS = {"base": "a cat\n", "hc": "a dog\n"}


def comparison(base, shift, kinds=KINDS, base_text=TRANSLATIONS["base"]):
    bins = [{"attribute": attribute, "binning": binning, "low": low, "high": high, "sentences": 20,
             "base": 30.0, "other": 30 + shift + high, "difference": shift + high,
             "lower": shift, "upper": shift + high + 2}
            for attribute, binning in kinds for low, high in QUINTILES]  # fmt: skip
    whole = {"first": 30.25, "second": 30.25 + shift, "first_interval": 1.5, "second_interval": 2.0, "p": 0.0311}
    translations = {"base": digest(base_text), "run": digest(TRANSLATIONS["hc"])}
    return {"kind": "comparison", "split": "test", "base": base, "translations": translations,
            "whole": {"BLEU": whole | {"signature": "nrefs:1"}}, "bins": bins}  # fmt: skip


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def share(successes, trials=20):
    return {"trials": trials, "successes": successes, "value": successes / trials, "lower": successes / trials - 0.05,
            "upper": successes / trials + 0.1}  # fmt: skip


def contrastive(shift, per_token=False):
    distances = {"0": share(4 + shift), "2": share(2 + shift), "15": share(5), ">15": share(9)}
    return {"kind": "contrastive", "name": "ling", "per_token": per_token,
            "types": {"verb": share(10 + shift), "noun": share(shift)}, "distances": {"verb": distances}}  # fmt: skip


@pytest.fixture
def run_with(make_run):
    def make(name, *analyses):
        folder = make_run(name, softmax_layers=())
        (folder / "analyses").mkdir()
        for number, content in enumerate(analyses):
            write_json(folder / "analyses" / f"{number}.json", "analysis", content)
        return folder

    return make


def test_heads_are_drawn_at_their_mean_offsets(run_with):
    runs = [read_run(run_with(name, attention("encoder", "cross"))) for name in ("a", "b")]
    located = [(run, line_style(index), run.analyses["0"]["heads"]) for index, run in enumerate(runs)]
    grid = locality_plot(located, "test", "x").figure.axes
    assert [axes.get_title(loc="left") for axes in grid] == ["encoder", "cross-attention", "", ""]
    for axes, expected in zip(grid, [[0, -0.1, -1, -1.1]] * 2 + [[1.25, 1.25, 2.25, 2.25]] * 2, strict=True):
        dots = axes.lines[1:]
        assert [list(line.get_ydata()) for line in dots] == [expected, expected]
        assert [round(x) for line in dots for x in line.get_xdata()] == [1, 1, 2, 2] * 2
        assert len({x for line in dots for x in line.get_xdata()}) == 8, "no dot hides another"


def test_differences_are_drawn_over_their_bins_with_intervals(run_with):
    runs = [read_run(run_with(name, comparison("base", shift))) for name, shift in (("a", -9.5), ("b", 1))]
    compared = [(run, line_style(index), run.analyses["0"]["bins"]) for index, run in enumerate(runs)]
    grid = differences_plot(compared, "base", "test", "x").figure.axes
    assert len(grid) == 2
    assert [tick.get_text() for tick in grid[0].get_xticklabels()] == ["1–4", "5", "6–9", "10–12", "13–31"]
    for bar, shift in zip(grid[1].containers, (-9.5, 1), strict=True):
        line, _, (whiskers,) = bar.lines
        assert list(line.get_ydata()) == [shift + high for _, high in QUINTILES]
        ends = [tuple(segment[:, 1]) for segment in whiskers.get_segments()]
        assert ends == [pytest.approx((shift, shift + high + 2)) for _, high in QUINTILES]


def contrasted(run_with):
    runs = [read_run(run_with(name, contrastive(shift))) for name, shift in (("a", 0), ("b", 3))]
    return [(run, line_style(index), run.analyses["0"]) for index, run in enumerate(runs)]


def test_accuracies_are_drawn_by_type_with_intervals(run_with):
    (axes,) = _types_plot(contrasted(run_with), "x", "").figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["verb", "noun"]
    for bar, values in zip(axes.containers, ([50, 0], [65, 15]), strict=True):
        line, _, (whiskers,) = bar.lines
        assert list(line.get_xdata()) == pytest.approx(values)
        assert [round(y) for y in line.get_ydata()] == [0, 1]
        ends = [tuple(segment[:, 0]) for segment in whiskers.get_segments()]
        assert ends == [pytest.approx((value - 5, value + 10)) for value in values]


def test_distances_increase_to_the_right(run_with):
    (axes,) = _distances_plot(contrasted(run_with), "verb", "x", "").figure.axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "2", "15", ">15"]
    assert list(axes.containers[1].lines[0].get_ydata()) == pytest.approx([35, 25, 25, 45])


@pytest.mark.usefixtures("without_drawing")
def test_suites_scored_in_different_ways_have_separate_sections(run_with, tmp_path):
    page = write_report([run_with("a", contrastive(1), contrastive(2, per_token=True))], tmp_path / "out")
    text = page.read_text()
    assert text.count("<h3>Contrastive pairs: ling") == 2
    assert "55.0 (50.0–65.0)" in text
    assert "60.0 (55.0–70.0)" in text
    names = {path.stem for path in page.parent.glob("figures/*contrastive*.png")}
    assert names == {"data-1-contrastive-ling" + end for end in ("", "-verb", "-per-token", "-per-token-verb")}


@pytest.mark.usefixtures("without_drawing")
def test_suites_of_one_name_have_separate_sections_and_figures(run_with, tmp_path):
    suites = [contrastive(shift) | {"sources": {"ling.json": digest}} for shift, digest in ((1, "abc"), (2, "def"))]
    page = write_report([run_with("a", *suites), run_with("b", suites[1])], tmp_path / "out")
    _, first, second = page.read_text().split("<h3>Contrastive pairs: ")
    assert [part.partition("</h3>")[0] for part in (first, second)] == ["ling", "ling (2)"]
    assert [part.count("60.0 (55.0–70.0)") for part in (first, second)] == [0, 2]
    names = {path.stem for path in page.parent.glob("figures/*contrastive*.png")}
    assert names == {"data-1-contrastive-ling" + end for end in ("", "-verb", "-2", "-2-verb")}


@pytest.mark.usefixtures("without_drawing")
def test_the_page_shows_both_analyses_with_their_numbers(run_with, tmp_path):
    runs = [run_with("base", attention("encoder")), run_with("hc", attention("decoder"), comparison("base", 0.25))]
    page = write_report(runs, tmp_path / "out")
    text = page.read_text()
    names = {path.stem for path in page.parent.glob("figures/*.png")}
    assert {"data-1-test-locality", "data-1-test-against-base"} <= names
    assert "Against base (test)" in text
    assert "30.25 ± 1.50" in text
    assert "30.50 ± 2.00 (+0.25, p 0.031)" in text
    assert "nrefs:1" in text
    assert "-1.10 (2.25)" in text
    assert re.search(r"<td>1–4</td><td [^>]*>20</td><td [^>]*>30.00</td><td [^>]*>\+4.25 \(\+0.25 to \+6.25\)", text)


@pytest.mark.usefixtures("without_drawing")
@pytest.mark.parametrize("changed", ["hc", "base", None])
def test_an_outdated_comparison_is_not_shown(run_with, tmp_path, changed):
    runs = [run_with("base"), run_with("hc", comparison("base", 0.25))]
    for folder in runs:
        text = "something else\n" if folder.name == changed else TRANSLATIONS[folder.name]
        (folder / "scores/test.translations.txt").write_text(text)
    text = write_report(runs, tmp_path / "out").read_text()
    assert ("hc or base was evaluated again after they were compared" in text) == (changed is not None)
    assert ("(+0.25, p 0.031)" in text) == (changed is None)


@pytest.mark.usefixtures("without_drawing")
@pytest.mark.parametrize("lines", [4, 20])
def test_a_comparison_of_few_lines_has_a_caution(run_with, tmp_path, lines):
    found = comparison("base", 0.25)
    found["bins"] = [row | {"sentences": lines} for row in found["bins"]]
    text = write_report([run_with("base"), run_with("hc", found)], tmp_path / "out").read_text()
    assert "(+0.25, p 0.031)" in text
    assert ("Caution: the split has 20 examples to resample, fewer than 30" in text) == (lines == 4)


@pytest.mark.usefixtures("without_drawing")
def test_bases_with_equal_names_have_separate_sections(run_with, tmp_path):
    runs = [run_with(f"{parent}/{name}", *found) for parent in ("x", "y") for name, found in
            (("base", []), ("hc", [comparison("base", 1 if parent == "x" else 2, base_text=parent)]))]  # fmt: skip
    for folder in runs:
        if folder.name == "base":
            (folder / "scores/test.translations.txt").write_text(folder.parent.name)
    page = write_report(runs, tmp_path / "out")
    assert page.read_text().count("Against base (test)") == 2
    names = {path.stem for path in page.parent.glob("figures/*against*.png")}
    assert names == {"data-1-test-against-base", "data-1-test-against-base-2"}


@pytest.mark.usefixtures("without_drawing")
def test_runs_without_analyses_have_no_such_sections(make_run, tmp_path):
    text = write_report([make_run(softmax_layers=())], tmp_path / "out").read_text()
    assert "Where heads style" not in text
    assert "Against" not in text


@pytest.mark.usefixtures("without_drawing")
def test_a_damaged_analysis_is_named(run_with, tmp_path):
    folder = run_with("a", attention("encoder"))
    (folder / "analyses" / "0.json").write_text("{")
    with pytest.raises(DataError, match=r"analyses/0\.json: not JSON"):
        write_report([folder], tmp_path / "out")

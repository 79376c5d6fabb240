"""Figures of a sweep: points are scores of cells with intervals, in the order of the recipe."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from structattn.metrics.statistics import sample_statistics
from structattn.settings.sweep import SweepSettings
from structattn.sweeps.figures import cells_plot, sweep_figures
from structattn.sweeps.outcome import Outcome, TrialResult
from structattn.sweeps.report import write_sweep_results
from structattn.sweeps.results import SweepResults, read_sweep_results
from structattn.sweeps.table import TableRow

FIGURE = {"x_axis": "depth", "score": "test.BLEU", "statistic": "mean", "caption": "BLEU by depth"}


def sweep(**figure):
    grid = {"depth": {"8": {}, "2": {}, "4": {}}, "model": {"base": {}, "hc": {}}}
    return SweepSettings.model_validate(
        {"base": {}, "grid": grid, "evaluate": {"test": "all", "valid": "all"}, "figures": [FIGURE | figure]}
    )


def row(depth, model, numbers, interval=1.5):
    values = {"BLEU": sample_statistics(numbers)}
    cell = {"depth": depth, "model": model}
    scores = {"BLEU": max(numbers), "BLEU ±": interval}
    return TableRow(cell, 1.0, "x", sample_statistics([1.0, 1.2]), {}, {"test": scores}, {"test": values})


ROWS = [row("2", "base", [20, 24]), row("4", "base", [30]), row("8", "hc", [10]), row("2", "hc", [12])]


def curves_of(plot):
    """Return label -> positions, values and interval ends of its curve."""
    (axes,) = plot.figure.axes
    labels = [text.get_text() for legend in plot.figure.legends for text in legend.get_texts()]
    found = {}
    for label, bar in zip(labels, axes.containers, strict=True):
        line, _, (whiskers,) = bar.lines
        ends = [tuple(segment[:, 1]) for segment in whiskers.get_segments()]
        found[label] = ([round(x) for x in line.get_xdata()], list(line.get_ydata()), ends)
    return [tick.get_text() for tick in axes.get_xticklabels()], found


def test_there_is_a_curve_with_intervals_for_each_value_of_the_other_axes():
    (plot,) = sweep_figures(sweep(), ROWS, [], Path(), "small")
    positions, curves = curves_of(plot)
    interval = sample_statistics([20, 24]).interval
    assert plot.name == "small-depth-test-bleu"
    assert positions == ["8", "2", "4"]
    assert curves["base"] == ([1, 2], [22, 30], [pytest.approx((22 - interval, 22 + interval)), (28.5, 31.5)])
    assert curves["hc"] == ([0, 1], [10, 12], [(8.5, 11.5), (10.5, 13.5)])


def test_figures_of_one_kind_have_files_of_their_own():
    (figure,) = sweep().figures
    both = sweep().model_copy(update={"figures": (figure, figure.model_copy(update={"statistic": "max"}))})
    names = [plot.name for plot in sweep_figures(both, ROWS, [], Path(), "small")]
    assert names == ["small-depth-test-bleu", "small-depth-test-bleu-2"]


def test_cells_without_scores_are_not_drawn():
    assert sweep_figures(sweep(score="valid.BLEU"), ROWS, [], Path(), "small") == []
    (plot,) = sweep_figures(sweep(score="validation", statistic="selected"), ROWS, [], Path(), "small")
    assert curves_of(plot)[1]["hc"][1] == [1.0, 1.0]


def test_figures_are_written_next_to_the_results(tmp_path):
    results = SweepResults([], 0, ROWS, [], [], [], tmp_path)
    folder = tmp_path / "results" / "new"
    command = "structattn sweep recipe.yaml --trial-results t\udcff.jsonl"  # of a path that is not UTF-8
    write_sweep_results(folder / "small.json", command, sweep(), results)
    content = json.loads((folder / "small.json").read_text())
    assert content["command"] == command
    assert content["figures"] == [{"name": "small-depth-test-bleu", "caption": "BLEU by depth"}]
    assert "figures" not in content["settings"]
    assert {path.name for path in folder.iterdir()} == {"small.json"} | {
        f"small-depth-test-bleu.{end}" for end in ("png", "pdf")
    }


def test_an_unknown_axis_is_rejected():
    with pytest.raises(ValueError, match=r"figures\.0\.x_axis: 'width' is not an axis; the grid has depth, model"):
        sweep(x_axis="width")
    with pytest.raises(ValueError, match=r"figures\.0\.panels: 'length' is not an axis"):
        sweep(panels="length")
    with pytest.raises(ValueError, match="x_axis: length needs score"):
        sweep(x_axis="length")
    with pytest.raises(ValueError, match="x_axis: epoch needs score: validation"):
        sweep(x_axis="epoch")


def result_of(cell, name, outcome):
    return TrialResult(SimpleNamespace(cell=cell, name=name), 1.0, 1.0, 1, outcome)


def test_figures_by_epoch_show_the_selected_trial_before_thin_curves_of_the_others(tmp_path):
    def trained(cell, name, differences):
        events = [
            {"epoch": epoch, "cross_entropy_difference": value, "cross_entropy": 9.0}
            for epoch, value in enumerate(differences, start=1)
        ]
        return result_of(cell, name, Outcome({}, events, {}, {}))

    cell, other = ({"depth": "2", "model": model} for model in ("base", "hc"))
    curves = {"good": [0.5, 0.125], "bad": [0.5, 0.25], "short": [0.75]}
    results = [trained(cell, name, values) for name, values in curves.items()]
    results.append(trained(other, "alone", [0.375, 0.25]))
    rows = [
        TableRow(cell, 0.125, "good", sample_statistics([1.0]), {}, {}, {}),
        TableRow(other, 0.25, "alone", sample_statistics([1.0]), {}, {}, {}),
    ]
    by_epoch = sweep(x_axis="epoch", score="validation", statistic="selected")
    (plot,) = sweep_figures(by_epoch, rows, results, tmp_path, "small")
    (axes,) = plot.figure.axes
    thick = [bar.lines[0] for bar in axes.containers]
    thin = [line for line in axes.lines if line not in thick]
    assert [list(line.get_ydata()) for line in thick] == [curves["good"], [0.375, 0.25]]
    assert [list(line.get_ydata()) for line in thin] == [curves["bad"], curves["short"]]
    assert {line.get_color() for line in thin} == {thick[0].get_color()}
    assert all(line.get_linewidth() < thick[0].get_linewidth() for line in thin)


def test_figures_by_length_have_a_panel_per_value_a_curve_per_cell_and_thin_ones_of_other_trials(tmp_path):
    results = []

    def scored(depth, model, *of_trials):
        cell = {"depth": depth, "model": model}
        for trial, accuracies in enumerate(of_trials):
            lengths = [{"length": n, "accuracy": value} for n, value in accuracies.items()]
            outcome = Outcome({}, [], {"test": {"by_length": lengths}} if lengths else {}, {})
            results.append(result_of(cell, f"{depth}-{model}-{trial}", outcome))
        return TableRow(cell, 1.0, f"{depth}-{model}-0", sample_statistics([1.0]), {}, {}, {})

    rows = [
        scored("2", "base", {60: 0.25, 41: 0.5}, {60: 0.125, 41: 0.375}, {}),
        scored("2", "hc", {0: 0.875, 41: 1.0, 60: None}),
        scored("4", "hc", {41: 0.75}),
        TableRow({"depth": "8", "model": "hc"}, 1.0, "not-scored", sample_statistics([1.0]), {}, {}, {}),
    ]
    by_length = sweep(x_axis="length", score="test.accuracy", statistic="selected", panels="depth")
    (plot,) = sweep_figures(by_length, rows, results, tmp_path, "small")
    panels = plot.figure.axes
    assert [axes.get_title(loc="left") for axes in panels] == ["2", "4"]
    lines = [[bar.lines[0] for bar in axes.containers] for axes in panels]
    curves = [[list(zip(line.get_xdata(), line.get_ydata(), strict=True)) for line in its] for its in lines]
    assert curves == [[[(41, 0.5), (60, 0.25)], [(0, 0.875), (41, 1.0)]], [[(41, 0.75)]]]
    thin = [line for line in panels[0].lines if line not in lines[0]]
    assert [(list(line.get_xdata()), list(line.get_ydata())) for line in thin] == [([41, 60], [0.375, 0.125])]
    base, hc, again = lines[0][0], lines[0][1], lines[1][0]
    assert hc.get_color() == again.get_color() != base.get_color(), "a model styles the same in all panels"


def test_dependencies_of_matching_cells_are_drawn_and_computed_if_missing(run_here, tmp_path, caplog):
    lengths = {"train_lengths": [8, 8], "test_lengths": [8, 8]}
    tree = {
        "base": {
            "task": "formal_language",
            "prepare": {"language": "stack-language", "train": 20, "valid": 10, "test_per_length": 4, **lengths},
            "model": {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": "1xhard"},
            "training": {"max_updates": 2, "max_epochs": None},
        },
        "grid": {"model": {"hard": {}, "soft": {"model.layers": "1"}, "other": {"model.layers": "2"}}},
        "figures": [{"kind": "dependencies", "cell": {"model": ["soft", "hard"]}, "caption": "figure 2"}],
    }
    small = SweepSettings.model_validate(tree)
    run_here(tree, tmp_path)
    results = read_sweep_results(small, tmp_path)
    for _ in range(2):  # the second time from the records
        (plot,) = sweep_figures(small, results.rows, results.ended, results.runs, "small")
        assert (plot.name, plot.caption) == ("small-dependencies", "figure 2")
        assert [axes.get_title("left") for axes in plot.figure.axes] == ["true dependencies", "hard", "soft"]
    for row in results.rows:
        shutil.rmtree(results.runs / row.selected)
    assert sweep_figures(small, results.rows, results.ended, results.runs, "small") == []
    assert caplog.messages == [f"{results.runs}: the figure dependencies lacks 2 cells without run folder"]
    with pytest.raises(ValueError, match=r"figures\.0: 'harder' is not a value of 'model'"):
        SweepSettings.model_validate(
            tree | {"figures": [{"kind": "dependencies", "cell": {"model": "harder"}, "caption": ""}]}
        )


def test_validation_curves_and_stacks_of_the_selected_trials_are_drawn(run_here, tmp_path):
    lengths = {"train_lengths": [4, 8], "test_lengths": [10, 12]}
    tree = {
        "base": {
            "task": "formal_language",
            "prepare": {"language": "marked-reversal", "train": 20, "valid": 10, "test_per_length": 4, **lengths},
            "model": {"d_model": 8, "num_heads": 2, "d_ff": 8},
            "training": {"max_epochs": 3, "early_stopping_patience": None},
        },
        "grid": {"model": {"Tf": {"model.layers": "1"}, "Tf+Sup": {"model.layers": "superposition-4"}}},
        "figures": [
            {"x_axis": "epoch", "caption": "validation"},
            {"kind": "stack_maps", "caption": "actions"},
            {"kind": "stack_maps", "cell": {"model": "Tf"}, "caption": "no stack, no figure"},
        ],
    }
    small = SweepSettings.model_validate(tree)
    run_here(tree, tmp_path)
    results = read_sweep_results(small, tmp_path)
    curves, stack = sweep_figures(small, results.rows, results.ended, results.runs, "small")
    assert (curves.name, stack.name) == ("small-epoch-validation", "small-tf-sup-layer-1-stack")
    (axes,) = curves.figure.axes
    assert [list(bar.lines[0].get_xdata()) for bar in axes.containers] == [[1, 2, 3], [1, 2, 3]]
    for bar, row in zip(axes.containers, results.rows, strict=True):
        assert min(bar.lines[0].get_ydata()) == pytest.approx(row.best)
    assert stack.caption == "Tf+Sup, layer 1. actions"


def test_heads_and_differences_of_translations_are_drawn(run_here, tmp_path):
    words = ["eins", "zwei", "drei vier", "vier", "zwei drei eins", "eins vier"]
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.de").write_text("".join(f"{line}\n" for line in words))
        (tmp_path / f"{name}.en").write_text("".join(f"{line.upper()}\n" for line in words))
    files = {name: [str(tmp_path / f"{name}.{side}") for side in ("de", "en")] for name in ("train", "valid", "test")}
    gaussian = {"model.encoder.layers": "1xgaussian", "model.decoder.layers": "1xgaussian"}
    tree = {
        "base": {
            "task": "translation",
            "prepare": {"kind": "parallel", **files, "level": "character"},
            "model": {"kind": "encoder_decoder", "d_model": 8, "d_ff": 8, "num_heads": 2}
            | {side: {"layers": 1} for side in ("encoder", "decoder")},
            "training": {"batches": {"kind": "pairs", "max_tokens": 200}, "loss": "token_mean", "max_updates": 2},
            "evaluation": {"beam_size": 1, "max_length": 8},
        },
        "grid": {"model": {"base": {}, "hc-sa": gaussian}},
        "evaluate": {"test": "all"},
        "figures": [
            {"kind": "locality", "cell": {"model": "base"}, "caption": "heads"},
            {"kind": "differences_by_bin", "base": {"model": "base"}, "caption": "bins"},
        ],
    }
    small = SweepSettings.model_validate(tree)
    run_here(tree, tmp_path / "sweep")
    results = read_sweep_results(small, tmp_path / "sweep")
    heads, bins = sweep_figures(small, results.rows, results.ended, results.runs, "small")
    assert (heads.name, bins.name) == ("small-locality", "small-differences-base")
    assert [axes.get_title() or axes.get_title("left") for axes in heads.figure.axes[:3]] == [
        "encoder",
        "decoder",
        "cross-attention",
    ]
    assert [text.get_text() for text in bins.figure.legends[0].get_texts()] == ["hc-sa"]
    with pytest.raises(ValueError, match=r"figures\.0\.base: no value for model"):
        SweepSettings.model_validate(tree | {"figures": [{"kind": "differences_by_bin", "base": {}, "caption": ""}]})


def test_without_figures_there_is_one_of_the_cells():
    plot = cells_plot(ROWS[:3], "small")
    (axes,) = plot.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["2, base", "4, base", "8, hc"]
    interval = sample_statistics([1.0, 1.2]).interval
    for place, bar in enumerate(axes.containers):
        line, _, (whiskers,) = bar.lines
        assert (list(line.get_xdata()), list(line.get_ydata())) == ([pytest.approx(1.1)], [place])
        ends = whiskers.get_segments()[0][:, 0]
        assert list(ends) == pytest.approx([1.1 - interval, 1.1 + interval])
    dots = [line for line in axes.lines if len(line.get_xdata()) == 2]
    assert [sorted(line.get_xdata()) for line in dots] == [[1.0, 1.2]] * 3
    assert all(min(line.get_ydata()) > place for place, line in enumerate(dots))  # the interval does not hide them
    assert cells_plot([], "small") is None


def test_the_first_of_many_cells_are_drawn():
    plot = cells_plot([row(str(number), "base", [1.0]) for number in range(300)], "many")
    assert len(plot.figure.axes[0].get_yticklabels()) == 200
    assert plot.caption.endswith("The first 200 of 300 cells.")


def test_the_figure_of_the_cells_says_what_is_drawn():
    recognized, modeled = (replace(ROWS[0], score=f"cross-entropy, in nats per {unit}") for unit in ("string", "token"))
    one = cells_plot([recognized], "one")
    assert "nats per string:" in one.caption
    assert one.figure.axes[0].get_xlabel() == recognized.score
    assert "nats per string or cross-entropy, in nats per token:" in cells_plot([recognized, modeled], "both").caption

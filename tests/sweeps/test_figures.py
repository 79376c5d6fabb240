"""Pictures of a sweep: each point is a cell's number, each bar its interval, places stand as in the recipe."""

import json
from pathlib import Path

import pytest

from structattn.settings.sweep import SweepSettings
from structattn.sweeps.figures import figures_of
from structattn.sweeps.results import SweepResults, write_results
from structattn.sweeps.table import Row, spread_of

FIGURE = {"along": "depth", "score": "test.BLEU", "of": "mean", "says": "BLEU by depth"}


def sweep(**figure):
    grid = {"depth": {"8": {}, "2": {}, "4": {}}, "model": {"base": {}, "hc": {}}}
    return SweepSettings.model_validate({"base": {}, "grid": grid, "figures": [FIGURE | figure]})


def row(depth, model, numbers, interval=1.5):
    values = {"BLEU": spread_of(numbers)}
    cell = {"depth": depth, "model": model}
    scores = {"BLEU": max(numbers), "BLEU ±": interval}
    return Row(cell, 1.0, "x", spread_of([1.0, 1.2]), {}, {"test": scores}, {"test": values})


ROWS = [row("2", "base", [20, 24]), row("4", "base", [30]), row("8", "hc", [10]), row("2", "hc", [12])]


def drawn(plot):
    """Label -> the places, values and ends of the intervals of its curve."""
    (axes,) = plot.figure.axes
    labels = [text.get_text() for legend in plot.figure.legends for text in legend.get_texts()]
    found = {}
    for label, bar in zip(labels, axes.containers, strict=True):
        line, _, (whiskers,) = bar.lines
        ends = [tuple(segment[:, 1]) for segment in whiskers.get_segments()]
        found[label] = ([round(x) for x in line.get_xdata()], list(line.get_ydata()), ends)
    return [tick.get_text() for tick in axes.get_xticklabels()], found


def test_a_curve_for_each_of_the_other_values_with_intervals_over_trials_or_of_the_score():
    (plot,) = figures_of(sweep(), ROWS, "small")
    places, curves = drawn(plot)
    interval = spread_of([20, 24]).interval
    assert plot.name == "small-depth-test-bleu"
    assert places == ["8", "2", "4"]
    assert curves["base"] == ([1, 2], [22, 30], [pytest.approx((22 - interval, 22 + interval)), (28.5, 31.5)])
    assert curves["hc"] == ([0, 1], [10, 12], [(8.5, 11.5), (10.5, 13.5)])


def test_what_no_cell_was_scored_on_is_not_drawn():
    assert figures_of(sweep(score="valid.BLEU"), ROWS, "small") == []
    (plot,) = figures_of(sweep(score="validation", of="selected"), ROWS, "small")
    assert drawn(plot)[1]["hc"][1] == [1.0, 1.0]


def test_they_lie_beside_the_results(tmp_path):
    results = SweepResults([], 0, ROWS, [], [], [])
    write_results(tmp_path / "small.json", Path("recipe.yaml"), sweep(), results)
    content = json.loads((tmp_path / "small.json").read_text())
    assert content["figures"] == [{"name": "small-depth-test-bleu", "says": "BLEU by depth"}]
    assert "figures" not in content["settings"]
    assert {path.name for path in tmp_path.iterdir()} == {"small.json"} | {
        f"small-depth-test-bleu.{end}" for end in ("png", "pdf")
    }


def test_an_axis_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"figures\.0\.along: 'width' is no axis; the grid has depth, model"):
        sweep(along="width")

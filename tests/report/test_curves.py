"""Learning curves and curves by length show the given numbers."""

import numpy as np
import pytest

from structattn.report.curves import (
    learning_curve_plots,
    length_curve_plot,
    pool_lengths,
    training_series,
    validation_series,
)
from structattn.report.runs import read_run
from structattn.report.style import line_style


def runs_of(*folders):
    return [(read_run(folder), line_style(index)) for index, folder in enumerate(folders)]


def test_the_length_curve_shows_differences_and_marks_training_lengths(make_run):
    runs = runs_of(make_run("a"), make_run("b", excess=0.05))
    (axes,) = length_curve_plot(runs, "test", "x").figure.axes
    first, second, perfect = [line for line in axes.lines if len(line.get_xdata()) > 2]
    rows = runs[0][0].scores["test"]["by_length"]
    np.testing.assert_array_equal(first.get_xdata(), [row["length"] for row in rows])
    np.testing.assert_array_equal(first.get_ydata(), [row["cross_entropy_difference"] for row in rows])
    assert second.get_color() != first.get_color()
    assert 80 in [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 2]
    assert [text.get_text() for text in axes.texts] == ["training lengths"]
    assert len(perfect.get_xdata()) == 41


def test_the_curve_of_a_perfect_model_equals_the_derived_values(make_run):
    data = {"train_lengths": [40, 80], "train_number_of_lengths": 21, "language": "dyck"}
    (axes,) = length_curve_plot(runs_of(make_run(data=data)), "test", "x").figure.axes
    perfect = axes.lines[-1].get_ydata()
    assert round(perfect[0], 3) == 0.074
    assert round(perfect[-1], 3) == 0.038


def test_without_bounds_the_curve_shows_cross_entropies(make_run):
    rows = [
        {"length": n, "num_sequences": 3, "cross_entropy": n / 10, "cross_entropy_difference": None} for n in (4, 5, 9)
    ]
    run = make_run(by_length=rows, data={"kind": "sentences", "name": "text"})
    plot = length_curve_plot(runs_of(run), "test", "x")
    (line,) = plot.figure.axes[0].lines
    np.testing.assert_allclose(line.get_ydata(), [0.4, 0.5, 0.9])
    assert "bound" not in plot.caption


def test_a_single_length_has_no_curve(make_run):
    assert length_curve_plot(runs_of(make_run(by_length=[])), "test", "x") is None


def test_pooling_keeps_the_mean_per_symbol():
    generator = np.random.default_rng(5)
    rows = [{"length": int(n), "num_sequences": int(generator.integers(1, 9)), "cross_entropy": generator.random()}
            for n in range(1, 200)]  # fmt: skip
    points = pool_lengths(rows, most=10)
    symbols = [row["num_sequences"] * (row["length"] + 1) for row in rows]
    whole = sum(w * row["cross_entropy"] for w, row in zip(symbols, rows, strict=True)) / sum(symbols)
    assert len(points) <= 10
    assert np.mean([value for _, value in points]) == pytest.approx(whole, abs=0.03)
    ((length, value),) = pool_lengths(rows, most=1)
    assert value == pytest.approx(whole, rel=1e-12)
    assert length == pytest.approx(np.average(range(1, 200), weights=[row["num_sequences"] for row in rows]))


def test_training_losses_are_averaged_per_symbol(make_run):
    run = read_run(make_run(epochs=1, per_epoch=7))
    updates, values = training_series(run, most=2)
    losses = [event["loss"] for event in run.of("train")]
    np.testing.assert_array_equal(updates, [3, 7])
    np.testing.assert_allclose(values, [np.mean(losses[:3]), np.mean(losses[3:])])
    np.testing.assert_allclose(training_series(run)[1], losses)


def test_learning_curves_have_the_bound(make_run):
    runs = runs_of(make_run())
    training, validation = (plot.figure.axes[0] for plot in learning_curve_plots(runs, "x"))
    bound, curve = validation.lines
    assert list(bound.get_ydata()) == [0.3843, 0.3843]
    np.testing.assert_array_equal(curve.get_ydata(), validation_series(runs[0][0])[1])
    assert len(training.lines) == 1


def test_learning_curves_of_recognizers_are_per_string(make_run):
    for plot in learning_curve_plots(runs_of(make_run(task="recognition")), "x"):
        assert plot.figure.axes[0].get_ylabel() == "nats per string"
        assert plot.caption.endswith("in nats per string.")


def test_a_run_without_events_has_no_curve(make_run):
    folder = make_run()
    (folder / "events.jsonl").unlink()
    assert learning_curve_plots(runs_of(folder), "x") == []


def test_an_overflowed_perplexity_is_accepted(make_run):
    run = make_run(perplexity=None)
    assert length_curve_plot(runs_of(run), "valid", "x") is not None

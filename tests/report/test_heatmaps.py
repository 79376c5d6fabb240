"""Heat maps: time on the horizontal axis, sources on the vertical axis, labelled by tokens."""

from dataclasses import replace

import matplotlib.colors
import numpy as np
import pytest

from structattn.explorer import figures
from structattn.explorer.figures import attention_plot, stack_plot
from structattn.explorer.recording_files import read_recorded_run
from structattn.loading.records import Record, action_names
from structattn.report.figure import figure_element
from structattn.report.style import KEEP, POP, PUSH


@pytest.fixture
def record(make_run):
    def of(**arguments):
        (example,) = read_recorded_run(make_run(**arguments)).examples
        return example.records[0]

    return of


def test_cells_are_at_position_and_source(record):
    given = record(tokens=list("ab#ba"))
    above, below, _ = stack_plot(given, "x", "").figure.axes
    np.testing.assert_allclose(below.images[0].get_array(), given.weights.T)
    assert [tick.get_text() for tick in below.get_xticklabels()] == list(given.tokens)
    assert [tick.get_text() for tick in below.get_yticklabels()] == list(given.sources)
    assert below.images[0].origin == above.images[0].origin == "upper"  # downwards
    rows = [np.array(image.get_array()) for image in above.images]
    for row, name in enumerate(action_names(given.mechanism)):
        assert above.get_yticklabels()[row].get_text() == name
        np.testing.assert_allclose(rows[row][row], given.actions[:, row])
        assert np.ma.masked_invalid(rows[row]).count() == len(given.tokens)


def test_dots_mark_the_most_probable_run(record):
    given = record(tokens=list("ab#ba"))
    (dots,) = stack_plot(given, "x", "").figure.axes[0].lines
    assert list(dots.get_xdata()) == [0, 1, 2, 3, 4]
    assert list(dots.get_ydata()) == [0, 0, 1, 2, 2]


def test_a_stack_without_best_run_has_no_dots(record):
    given = record(mechanism="superposition")
    assert stack_plot(given, "x", "").figure.axes[0].lines[:] == []


def test_sixty_tokens_are_all_labelled_in_legible_type(record):
    below = stack_plot(record(tokens=list("01" * 30)), "x", "").figure.axes[1]
    for labels, count in ((below.get_xticklabels(), 60), (below.get_yticklabels(), 61)):  # the bottom vector, too
        assert len(labels) == count
        assert all(label.get_fontsize() >= 7 for label in labels)


def test_long_examples_keep_legible_labels(record):
    figure = stack_plot(record(tokens=list("01" * 150)), "x", "").figure
    ticks = figure.axes[1].get_xticklabels()
    assert all(tick.get_fontsize() >= 5 for tick in ticks)
    assert 100 < len(ticks) < 300
    assert figure.get_figwidth() < 20


def test_a_single_token_can_be_drawn(record, tmp_path):
    assert "<svg" in figure_element(stack_plot(record(tokens=["<bos>"]), "x", ""), tmp_path)


def test_softmax_maps_have_a_row_for_each_layer_and_a_column_for_each_head(make_run):
    (example,) = read_recorded_run(make_run(softmax_layers=(0, 3))).examples
    records = example.records[1:]
    axes = attention_plot(records, "x", "").figure.axes
    assert [ax.get_title(loc="left") for ax in axes[:5]] == [
        "layer 1, head 1",
        "head 2",
        "head 3",
        "head 4",
        "layer 4, head 1",
    ]
    np.testing.assert_allclose(axes[5].images[0].get_array(), records[5].weights.T)


def test_what_is_added_to_a_layer_has_maps_of_its_own():
    square = np.eye(2)
    records = [
        Record(("a", "b"), 0, sublayer, head, mechanism, (1 + number) * square / 4, ("a", "b"))
        for number, (sublayer, head, mechanism) in enumerate(
            [("attention", 0, "softmax"), ("attention", 1, "softmax"), ("stack", None, "decay")]
        )
    ]
    axes = [each for each in attention_plot(records, "x", "").figure.axes if each.axison]
    assert [each.get_title(loc="left") for each in axes] == ["layer 1, head 1", "head 2", "layer 1, decay, head 1"]
    assert [[float(image.get_array()[0, 0]) for image in each.images] for each in axes] == [[0.25], [0.5], [0.75]]


def test_each_action_is_drawn_in_its_own_colour(record, monkeypatch):
    names = ("drop", "push", "pop", "swap")
    monkeypatch.setattr(figures, "action_names", lambda mechanism: names)
    example = record(tokens=["a", "b"])
    above, _, *_ = stack_plot(replace(example, actions=np.eye(4)[:2], best_run=None), "x", "").figure.axes
    assert len(above.images) == 4
    colors = [image.get_cmap()(1.0)[:3] for image in above.images]
    assert colors == [matplotlib.colors.to_rgb(each) for each in (KEEP, PUSH, POP, KEEP)]


def test_labelled_maps_have_positions_below_and_sources_at_the_left():
    records = [
        Record(("<bos>", "a", "b"), layer, "cross", head, "softmax", np.array([[1.0, 0.0]] * 3), ("x", "y"))
        for layer, head in ((0, 0), (0, 1), (1, 0))
    ]
    grid = attention_plot(records, "x", "", labelled=True).figure.axes
    labels = [
        ([tick.get_text() for tick in axes.get_xticklabels()], [tick.get_text() for tick in axes.get_yticklabels()])
        for axes in grid[:3]
    ]
    readers, sources = ["▷", "a", "b"], ["x", "y"]
    assert labels == [([], sources), (readers, []), (readers, sources)]
    assert not grid[3].axison, "the second layer has one head"
    assert grid[0].images[0].get_array().shape == (2, 3)

"""Receptive fields compared with known dependencies."""

import numpy as np
import pytest

from structattn.cli.report_page import write_report
from structattn.explorer.figures import dependency_plot
from structattn.explorer.recording_files import read_recorded_runs
from structattn.loading.records import Record

TOKENS = ("<bos>", "0", "(", "1")
TRUTH = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]]


@pytest.fixture
def add_field(write_examples):
    def add(folder, tokens=TOKENS, truth=None):
        field = np.array([[1.0 if j == i else 0.25 * (j < i) for j in range(4)] for i in range(4)])
        known = None if truth is None else np.array(truth, dtype=np.float32)
        record = Record(tokens, 3, "receptive-field", None, "receptive_field", field, tokens, truth=known)
        write_examples(folder, (tokens, [record]))
        return folder

    return add


def test_fields_of_all_runs_are_shown_with_the_true_dependencies(make_run, add_field):
    runs = [add_field(make_run(name), truth=TRUTH) for name in ("hard", "soft")]
    other = add_field(make_run("other"), tokens=("<bos>", "(", "(", "2"), truth=TRUTH)
    plot = dependency_plot(read_recorded_runs([*runs, other]), "dependencies")
    assert [axes.get_title("left") for axes in plot.figure.axes] == ["true dependencies", "hard", "soft"]
    truth, hard, _ = (axes.images[0].get_array() for axes in plot.figure.axes)
    assert truth.tolist() == TRUTH
    assert hard.tolist()[2] == [0.25, 0.25, 1.0, 0.0], "rows are predictions"


@pytest.mark.usefixtures("without_drawing")
def test_without_known_dependencies_each_run_shows_its_own(make_run, add_field, tmp_path):
    runs = [
        add_field(make_run("hard", tokens=TOKENS, softmax_layers=())),
        make_run("soft", tokens=TOKENS, softmax_layers=()),
    ]
    assert dependency_plot(read_recorded_runs(runs), "dependencies") is None
    write_report(runs, tmp_path / "out")
    names = {path.stem for path in (tmp_path / "out/figures").glob("*.png")}
    assert "run-1-hard-example-1-receptive-field" in names
    assert not [name for name in names if "dependencies" in name]

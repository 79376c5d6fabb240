"""Files of figures: characters that no installed font has are reported once; a user's settings change nothing."""

import logging

import matplotlib
from cycler import cycler

from structattn.cli.report_page import write_report
from structattn.report import figure as figures
from structattn.report.figure import Plot, figure_style, new_figure, write_files


def plot_of(text):
    with figure_style("x"):
        figure = new_figure(2, 1)
        figure.text(0, 0, text)
    return Plot("x", figure, "")


def test_a_script_without_a_font_is_reported_once(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("structattn.report.figure._FALLBACKS", ())
    figures._warn_of_script.cache_clear()
    with caplog.at_level(logging.WARNING):
        for name in ("\u3042\u3044", "\u3046"):
            write_files(plot_of(name), tmp_path)
    assert [record.getMessage()[:43] for record in caplog.records] == ["no installed font has Hiragana characters: "]


def test_text_that_the_font_has_is_not_reported(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        write_files(plot_of("Straße, Ελλάδα, Россия"), tmp_path)
    assert not caplog.records


SETTINGS = {
    "text.usetex": True,
    "image.origin": "lower",
    "savefig.bbox": "tight",
    "path.sketch": (1, 100, 2),
    "axes.prop_cycle": cycler(color=["red"]),
    "axes.facecolor": "black",
}


def test_equal_runs_give_equal_bytes_whatever_the_settings_of_the_user(make_run, tmp_path):
    """Settings as a matplotlibrc file in the user's folder has them."""
    runs, found = [make_run(tokens=["<bos>", *"01#10"], epochs=1, per_epoch=3, softmax_layers=())], []
    for name, settings in (("default", {}), ("changed", SETTINGS)):
        with matplotlib.rc_context(settings):
            page = write_report(runs, tmp_path / name)
        files = sorted(path for path in page.parent.rglob("*") if path.is_file())
        found.append({str(path.relative_to(page.parent)): path.read_bytes() for path in files})
    assert len(found[0]) == 9
    assert found[0] == found[1]

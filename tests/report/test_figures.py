"""Files of figures: characters that no installed font has are reported once."""

import logging

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

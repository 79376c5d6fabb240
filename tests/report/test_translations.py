"""The sample of translations: sources and references beside every run's lines, the worst first."""

import re
from dataclasses import replace
from html import unescape

import pytest

from structattn.report.runs import read_run
from structattn.report.style import line_style
from structattn.tasks.translation.report import translation_section
from structattn.text.folders.prepared import open_prepared


@pytest.fixture
def translated(make_run, parallel_data):
    """translated(name, lines) is a run with these translations of the test split."""

    def make(name, lines):
        folder = make_run(name)
        (folder / "scores/test.translations.txt").write_text("".join(line + "\n" for line in lines))
        run, data = read_run(folder), {"digest": open_prepared(parallel_data).digest}
        return replace(run, settings={"data": str(parallel_data)}, card=dict(run.card) | {"data": data})

    return make


def section(*runs):
    return translation_section([(run, line_style(index)) for index, run in enumerate(runs)], "test")


def test_ten_sentences_are_shown_with_all_translations_the_worst_first(parallel_data, translated):
    texts = {side: (parallel_data.parent / f"test.{side}").read_text().split("\n")[:-1] for side in ("de", "en")}
    good = [line + " <b>" for line in texts["en"]]
    bad = [line[: len(line) * place // 24] for place, line in enumerate(texts["en"])]
    page = section(translated("good", good), translated("bad", bad))
    pairs = [re.findall(r"<div><b>(.*?)</b>(.*?)</div>", pair) for pair in page.split('class="pair"')[1:]]
    assert len(pairs) == 10
    means = []
    for (_, source), (_, reference), (first, one), (second, other) in pairs:
        place = texts["de"].index(unescape(source))
        assert unescape(reference) == texts["en"][place]
        assert (unescape(one), unescape(other)) == (good[place], bad[place])
        means.append(sum(float(re.search(r"chrF2 ([0-9.]+)", label)[1]) for label in (first, second)) / 2)
    assert means == sorted(means)
    assert len(set(means)) > 5


def test_without_the_data_a_note_says_why(translated, tmp_path):
    run = replace(translated("run", ["x"]), settings={"data": str(tmp_path / "moved")})
    assert f"Translations are not shown: {tmp_path / 'moved'}" in section(run)


def test_texts_of_other_data_are_not_shown(parallel_data, translated):
    lines = [""] * 24
    moved, other = translated("moved", lines), translated("other", lines)
    moved = replace(moved, settings={"data": "gone"})
    other = replace(other, card=dict(other.card) | {"data": {"digest": "d"}})
    present = open_prepared(parallel_data).digest
    page = section(other)
    assert f"Translations are not shown: {parallel_data} has digest {present}, the data of the runs d." in page
    assert 'class="pair"' not in page
    assert section(moved, translated("run", lines)).count('class="pair"') == 10


def test_runs_without_translations_have_no_section(make_run):
    assert section(read_run(make_run())) == ""

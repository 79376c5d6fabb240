"""The report page: self-contained, well-formed and escaped."""

import logging
import os
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from structattn.cli.report_page import write_report
from structattn.report.style import INKS
from structattn.runs.folder import RunFolder
from structattn.support.errors import DataError, StructattnError
from structattn.support.json_files import read_json, write_json

VOID = {"meta", "br", "hr", "img", "input", "link"}
SHORT = {"tokens": ["<bos>", *"01#10"], "epochs": 1, "per_epoch": 3, "softmax_layers": ()}  # drawn in less time


class Checker(HTMLParser):
    """Collects tags, ids and references, and asserts that tags are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.ids, self.references, self.text = [], Counter(), Counter(), set(), []

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            self.ids.update([value] if name == "id" else [])
            self.references |= {value} if name in {"href", "src", "xlink:href"} else set()
            self.references |= set(re.findall(r"url\(([^)]*)\)", value or ""))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def checked(page):
    checker = Checker()
    checker.feed(page.read_text(encoding="utf-8"))
    checker.close()
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def report(write_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    runs = [
        write_run(folder, "tf", **SHORT, excess=0.041),
        write_run(folder, "tf-nd", **SHORT | {"softmax_layers": (0,)}),
    ]
    return write_report(runs, folder / "out")


def test_the_page_is_well_formed_with_unique_ids(report):
    checker = checked(report)
    assert checker.tags["svg"] == 6  # by length, training, validation, two stacks, one softmax
    assert max(checker.ids.values()) == 1


def test_the_page_is_self_contained(report):
    checker = checked(report)
    outside = {ref for ref in checker.references if not ref.startswith(("#", "data:image/png;base64,"))}
    assert outside == set()
    assert not {"script", "link", "img", "iframe"} & set(checker.tags)
    inside = {ref[1:] for ref in checker.references if ref.startswith("#")}
    assert inside
    assert inside <= set(checker.ids)
    assert "@import" not in report.read_text()


def test_figures_follow_the_theme(report):
    pictures = "".join(re.findall(r"<svg.*?</svg>", report.read_text(), flags=re.DOTALL))
    assert "var(--ink)" in pictures
    assert not [color for color in INKS.values() if color in pictures]


def test_figures_are_saved_as_png_and_pdf(report):
    figures = report.parent / "figures"
    stems = {path.stem for path in figures.glob("*.png")}
    assert stems == {path.stem for path in figures.glob("*.pdf")}
    assert stems == {
        "data-1-test-by-length",
        "data-1-learning-train",
        "data-1-learning-validation",
        "run-1-tf-example-1-layer-3",
        "run-2-tf-nd-example-1-layer-3",
        "run-2-tf-nd-example-1-softmax",
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in figures.glob("*.png"))
    assert all(path.read_bytes().startswith(b"%PDF") for path in figures.glob("*.pdf"))


def test_hostile_text_is_escaped(make_run, tmp_path):
    evil = "<script>alert(1)<"
    tokens = ["<bos>", "</svg><script>x", "$a_b$", "\x00", "日本", '"><img src=x>', "&amp;", "--><i>"]
    run = make_run(evil, tokens=tokens, model="<img src=//x>", softmax_layers=())
    files = RunFolder(run)
    files.write_card(files.read_card() | {"command": "<script>2</script>"})
    files.write_settings(files.read_settings().model_copy(update={"data": Path("</pre><script>3</script>")}))
    checker = checked(write_report([run], tmp_path / "out"))
    assert not {"script", "img", "i"} & set(checker.tags)
    text = "".join(checker.text)
    for shown in (evil, "<img src=//x>", "<script>2</script>", "</pre><script>3</script>", "$a_b$", "日本"):
        assert shown in text


@pytest.mark.usefixtures("without_drawing")
def test_runs_on_other_data_have_their_own_table(make_run, tmp_path):
    other = {"kind": "formal_language", "name": "d", "language": "dyck", "variant": "reference",
             "train_lengths": [40, 80], "train_number_of_lengths": 21}  # fmt: skip
    runs = [make_run("a", softmax_layers=()), make_run("b", softmax_layers=(), data=other)]
    checker = checked(write_report(runs, tmp_path / "out"))
    assert checker.tags["table"] == 6  # of each: the runs and two splits
    assert "dyck (reference)" in checker.text


def test_a_run_in_progress_is_reported(make_run, tmp_path):
    run = make_run(softmax_layers=())
    for path in [*run.glob("scores/*"), *run.glob("records/*"), run / "events.jsonl"]:
        path.unlink()
    files = RunFolder(run)
    files.write_card(files.read_card() | {"result": None})
    checker = checked(write_report([run], tmp_path / "out"))
    assert checker.tags["svg"] == 0
    assert "nd" in checker.text


def test_a_run_without_its_card_is_damaged(make_run, tmp_path):
    run = make_run(softmax_layers=())
    (run / "run.json").unlink()
    with pytest.raises(DataError, match=r"run\.json: cannot be read"):
        write_report([run], tmp_path / "out")


def test_damaged_files_are_reported(make_run, tmp_path):
    run = make_run(softmax_layers=())
    path = run / "scores" / "test.json"
    path.write_text(path.read_text()[:50])
    with pytest.raises(DataError, match=r"test\.json: not JSON"):
        write_report([run], tmp_path / "out")


def test_scores_of_another_form_are_reported(make_run, tmp_path):
    run = make_run(softmax_layers=())
    path = run / "scores" / "test.json"
    write_json(path, "scores", read_json(path, "scores") | {"recognition": {"groups": {}, "rules": {"length": 1}}})
    with pytest.raises(DataError, match=r"test\.json: recognition\.rules\.length"):
        write_report([run], tmp_path / "out")


def test_a_folder_that_is_not_a_run_is_reported(tmp_path):
    with pytest.raises(StructattnError, match="elsewhere is not a run folder"):
        write_report([tmp_path / "elsewhere"], tmp_path / "out")


@pytest.mark.usefixtures("without_drawing")
def test_a_folder_with_other_files_is_rejected(make_run, tmp_path):
    run, output = make_run("tf"), tmp_path / "home"
    output.mkdir()
    (output / "index.html").write_text("my own page")
    with pytest.raises(StructattnError, match=r"home: expected a new folder, .* found 'index.html'"):
        write_report([run], output)
    assert (output / "index.html").read_text() == "my own page"
    write_report([run], tmp_path / "out")
    write_report([run], tmp_path / "out")


def test_a_run_folder_may_have_a_name_that_is_not_unicode(write_run, tmp_path, without_drawing, caplog):
    caplog.set_level(logging.CRITICAL, "structattn")  # pytest-xdist cannot send a log that is not UTF-8
    folder = tmp_path / os.fsdecode(b"\xff")
    page = write_report([write_run(folder, name) for name in ("a", "b")] + [write_run(tmp_path, "a")], tmp_path / "out")
    assert r"\udcff" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("svg_only")
def test_names_of_runs_are_drawn_as_text(write_run, tmp_path, caplog):
    caplog.set_level(logging.CRITICAL, "structattn")
    folders = [write_run(tmp_path, os.fsdecode(name), **SHORT) for name in (b"r\xff", b"r\x1b[31m", b"r\n")]
    page = write_report(folders, tmp_path / "out").read_text()
    for shown in (r"r\udcff", r"r\x1b[31m", r"r\n"):
        assert shown in page


def with_data(folder, path, digest):
    """Change the data of a run, with scores or without."""
    run = RunFolder(folder)
    run.write_settings(run.read_settings().model_copy(update={"data": Path(path)}))
    card = run.read_card()
    run.write_card(card | {"data": card["data"] | {"digest": digest}})
    return folder


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([("x/marked", "1"), ("x/marked", "1")], ["Scores"]),
        ([("x/marked", "1"), ("moved/marked", "1")], ["Scores"]),
        ([("x/marked", "1"), ("y/marked", "2"), ("x/marked", "1")],
         ["marked-reversal (x/marked)", "marked-reversal (y/marked)"]),
        ([("x/marked", "1"), ("x/marked", "2")], ["marked-reversal (digest 1)", "marked-reversal (digest 2)"]),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("without_drawing")
def test_runs_on_different_data_of_one_name_are_apart(write_run, tmp_path, data, expected):
    folders = [with_data(write_run(tmp_path, f"r{number}", **SHORT), *each) for number, each in enumerate(data)]
    page = write_report(folders, tmp_path / "out").read_text()
    ends = ["Layers on examples", "Run cards"]
    assert re.findall("<h2>(.*?)</h2>", page) == [*expected, *ends]
    if len(expected) > 1:
        assert f"<h1>Report: {', '.join(expected)}</h1>" in page


@pytest.fixture
def svg_only(monkeypatch, save_empty_figure):
    """Figures are drawn for the page only, not for files beside it."""

    def save(figure, target, savefig=Figure.savefig, **options):
        (savefig if options["format"] == "svg" else save_empty_figure)(figure, target, **options)

    monkeypatch.setattr(Figure, "savefig", save)


@pytest.mark.usefixtures("svg_only")
def test_a_report_of_many_runs_says_which_it_draws(write_run, tmp_path):
    """Warnings are errors here: matplotlib warns of a legend that leaves no room for the axes."""
    folders = [write_run(tmp_path, f"a run with a long name, {number:03}", **SHORT) for number in range(30)]
    for folder in folders:
        shutil.rmtree(folder / "records")
    page = write_report(folders, tmp_path / "out")
    checker = checked(page)
    text = " ".join(checker.text)
    assert "Figures show the first 24 of these 30 runs; tables show all." in text
    assert all(text.count(folder.name) >= 4 for folder in folders)  # in the tables and the cards
    drawn = re.findall(r"<svg.*?</svg>", page.read_text(), re.DOTALL)
    assert [sum(folder.name in figure for folder in folders) for figure in drawn] == [24, 24, 24]


class KilledError(BaseException):
    """The end of a process by SIGKILL, or of what it can write by a full disk."""


@pytest.mark.usefixtures("without_drawing")
def test_an_interrupted_report_can_be_written_again(make_run, tmp_path, monkeypatch):
    """Renames of finished files are counted; what a killed process has begun stays where it is."""
    runs = [make_run(**SHORT)]
    whole, replace = write_report(runs, tmp_path / "whole").read_bytes(), Path.replace
    for survived in (0, 1, 3):
        left = iter(range(survived))

        def counted(self, target, left=left):
            if next(left, None) is None:
                raise KilledError
            return replace(self, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", counted)
            patch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
            with pytest.raises(KilledError):
                write_report(runs, tmp_path / "out")
    assert write_report(runs, tmp_path / "out").read_bytes() == whole

"""The command that writes word alignments."""

import json

import pytest
from tests.program import invoke, succeed

from structattn.tasks.translation import predict


def test_a_line_for_each_translation(run_dir, tmp_path):
    arguments = ["translate", str(run_dir("translation")), "--alignments", str(tmp_path / "links")]
    text = "eins zwei\n\ndrei\n"
    shown = succeed(*arguments, "--n-best", "2", "--json", input=text)
    found = [json.loads(line)["translations"] for line in shown.stdout.splitlines()]
    expected = [" ".join(f"{s}-{t}" for s, t in each["alignment"]) for of_line in found for each in of_line]
    assert (tmp_path / "links").read_text().split("\n") == [*expected, ""]
    assert any(expected)
    plain = invoke(*arguments, input=text)
    assert len((tmp_path / "links").read_text().splitlines()) == len(plain.stdout.splitlines()) == 3
    without = invoke(*arguments[:2], "--json", input=text)
    assert {each["alignment"] for line in without.stdout.splitlines() for each in json.loads(line)["translations"]} == {
        None
    }


@pytest.mark.parametrize("text", ["eins zwei\ndrei\n", "drei\n"])
def test_a_line_that_got_no_translation_has_an_empty_line(run_dir, tmp_path, monkeypatch, text):
    """As its translation is an empty line: a tool pairs both files line by line."""
    found = predict.beam_search
    monkeypatch.setattr(predict, "beam_search", lambda *a, **k: [*found(*a, **k)[:-1], []])
    arguments = ["translate", str(run_dir("translation")), "--alignments", str(tmp_path / "links")]
    shown = succeed(*arguments, input=text)
    lines, links = shown.stdout.split("\n"), (tmp_path / "links").read_text().split("\n")
    assert [bool(line) for line in lines] == [bool(line) for line in links]
    assert lines.count("") == 2
    listed = invoke(*arguments, "--n-best", "2", input=text)
    assert len((tmp_path / "links").read_text().splitlines()) == len(listed.stdout.splitlines())


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        (".", 1, "Is a directory"),
        ("begun/links", 1, "begun: Not a directory"),
        ("begun", 2, "begun: --prefixes reads this file; expected another one"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_translating(run_dir, tmp_path, name, code, message):
    (tmp_path / "begun").write_text("one\n")
    options = ["--prefixes", str(tmp_path / "begun"), "--alignments", str(tmp_path / name)]
    result = invoke("translate", run_dir("translation"), *options, input="eins zwei\n")
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""
    assert (tmp_path / "begun").read_text() == "one\n"


def test_the_folder_of_the_file_is_created(run_dir, tmp_path):
    succeed("translate", run_dir("translation"), "--alignments", tmp_path / "new/links", input="eins zwei\n")
    assert len((tmp_path / "new/links").read_text().splitlines()) == 1


def test_a_folder_without_permission_is_refused_before_translating(run_dir, tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)
    result = invoke("translate", run_dir("translation"), "--alignments", tmp_path / "links", input="eins zwei\n")
    assert result.exit_code == 1
    assert f"{tmp_path}: Permission denied" in result.stderr
    assert result.stdout == ""

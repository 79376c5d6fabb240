"""The page as Python writes it: its size, its policy, and what is refused."""

import contextlib
import json
import os
import re
import shutil
import zipfile

import pytest
from tests.program import invoke

from structattn.explorer.page import explorer_page, write_explorer
from structattn.explorer.recording_files import read_recording, recording_to_json, write_recording
from structattn.support.errors import StructattnError, UsageError

LIMIT = 150_000  # bytes of the page beside its data


def run(*arguments):
    return invoke("explore", *arguments)


@contextlib.contextmanager
def standard_output(file):
    """Let /dev/stdout be a file."""
    before = os.dup(1)
    os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)


def test_the_page_is_small_beside_its_data(recorded):
    content = recording_to_json(recorded("formal language"))
    data = {key: content[key] for key in ("run", "examples")}
    size = sum(len(text) for text in content["arrays"]) + len(json.dumps(data))
    assert len(explorer_page([content])) - size < LIMIT


def test_the_page_holds_the_recording(recorded):
    content = recording_to_json(recorded("formal language"))
    page = explorer_page([content]).decode()
    (data,) = re.findall(r'<script type="application/json" class="recording">(.*?)</script>', page)
    assert json.loads(data) == json.loads(json.dumps({"run": content["run"], "examples": content["examples"]}))
    assert re.findall(r'<script type="text/plain" id="array-0-\d+">(.*?)</script>', page) == content["arrays"]


def test_tokens_cannot_end_their_element(recorded):
    content = recording_to_json(recorded("formal language"))
    content["run"]["name"] = "</title><script>alert(1)</script>"
    content["examples"][0]["tokens"][0] = "</script><script>alert(1)</script><!--\u2028\ud800"
    page = explorer_page([content]).decode()
    assert page.count("<script") == page.count("</script>") == 2 + len(content["arrays"])
    assert "alert(1)</script" not in page
    assert "\u2028" not in page.split("<body>")[1].split("<script>")[0]


def test_the_policy_allows_the_script_and_nothing_else(recorded):
    page = explorer_page([recording_to_json(recorded("formal language"))]).decode()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", rules["script-src"])


def test_arrays_that_are_no_base64_are_refused(recorded):
    content = recording_to_json(recorded("formal language"))
    content["arrays"][1] = "</script>"
    with pytest.raises(StructattnError, match="array 1 of the recording is not base64"):
        explorer_page([content])
    with pytest.raises(UsageError, match="3 recordings; expected 1 or 2"):
        explorer_page([content] * 3)


def test_the_command_explores_runs_and_files(run_dir, recorded, tmp_path):
    page, file = tmp_path / "page.html", tmp_path / "record.json"
    folder = run_dir("language model")
    found = run(folder, "--text", "the dog", "--text", "a dog ran", "-o", page)
    assert found.exit_code == 0, found.output
    assert found.output.strip() == str(page)
    write_recording(file, recorded("language model"))
    both = run(folder, file, "--text", "the dog ran", "-o", page)
    assert both.exit_code == 0, both.output
    assert page.read_text().count('class="recording"') == 2
    assert run(file, "-o", page).exit_code == 0


def test_without_a_choice_the_first_test_examples_are_shown(run_dir, tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    monkeypatch.setattr("structattn.cli.explore.is_terminal_or_null", lambda: True)
    found = run(run_dir("formal language"), "--save", path)
    assert found.exit_code == 0, found.output
    assert [(each.split, each.example) for each in read_recording(path).examples] == [("test", n) for n in range(3)]


def test_empty_standard_input_is_refused(run_dir, tmp_path):
    found = run(run_dir("formal language"), "-o", tmp_path / "page.html")
    assert found.exit_code == 2
    assert "standard input is empty; expected lines of text" in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_explored_is_refused(recorded, tmp_path):
    file, other = tmp_path / "record", tmp_path / "other.html"  # JSON of any name but one in .npz
    write_recording(file, recorded("language model"))
    other.write_text("mine")
    assert "--beam and settings are for run folders" in run(file, "--text", "a").output
    assert "3 runs or files; expected 1 or 2" in run(file, file, file).output
    assert "none.json does not exist; expected a run folder, or a file" in run(tmp_path / "none.json").output
    assert "other.html: expected a new file, or an earlier page" in run(file, "-o", other).output
    assert other.read_text() == "mine"


def test_options_that_would_do_nothing_are_refused(run_dir, recorded, tmp_path):
    folder, page = run_dir("language model"), tmp_path / "page.html"
    assert "--port is for --serve" in run(folder, "--text", "a", "--port", "8000", "-o", page).output
    assert "--split is for examples" in run(folder, "--text", "a", "--split", "valid", "-o", page).output
    file = tmp_path / "record"
    write_recording(file, recorded("language model"))
    for option in (("--split", "test"), ("--depths", "3")):
        assert f"{option[0]}" in (shown := " ".join(run(file, *option, "-o", page).output.split()))
        assert "a file holds its own examples" in shown
    assert "beam continues texts; expected some" in run(folder, "--example", "0", "--beam", "2", "-o", page).output
    arrays = tmp_path / "record.npz"
    assert run(folder, "--text", "the dog", "--save", arrays).exit_code == 0
    assert (
        "record.npz: has arrays; expected a recording in JSON, from `structattn explore --save"
        in run(arrays, "-o", page).output
    )
    assert not page.exists()


def test_two_runs_have_distinct_names_and_the_same_examples(run_dir, tmp_path):
    one, page = run_dir("formal language"), tmp_path / "page.html"
    copy = shutil.copytree(one, tmp_path / one.name)
    found = run(one, copy, "--example", 0, "-o", page)
    assert found.exit_code == 0, found.output
    names = re.findall(rf'"name": ?"([^"]*{one.name})"', page.read_text())
    assert len(names) == len({*names}) == 2
    assert "warning" not in found.stderr
    other = run(one, run_dir("translation"), "--example", 0, "-o", page)
    assert "warning: the runs have other data; an example of 'test' may be another text in each" in other.stderr


def test_the_name_of_a_recording_is_not_written_into_it(run_dir, tmp_path):
    options = run_dir("formal language"), "--example", 0, "--save"
    saved = run(*options, "/dev/null")
    assert (saved.stdout, saved.stderr.splitlines()[-1]) == ("", "/dev/null")
    assert "--save -: expected a file; standard output is /dev/stdout" in run(*options, "-").stderr
    picture = run(*options[:-1], "-o", tmp_path / "a.PNG")
    assert "a.PNG: expected a page, .html, whose buttons save pictures" in picture.stderr
    assert not (tmp_path / "a.PNG").exists()
    with (tmp_path / "redirected.json").open("w") as file, standard_output(file):
        done = run(*options, "/dev/stdout")
    assert done.stderr.splitlines()[-1] == "/dev/stdout"
    read_recording(tmp_path / "redirected.json")
    assert run(*options, tmp_path / "a.NPZ").exit_code == 0
    assert zipfile.is_zipfile(tmp_path / "a.NPZ")


def test_of_two_runs_the_one_that_refuses_a_text_is_named(run_dir, tmp_path):
    folders = run_dir("language model"), run_dir("formal language")
    found = run(*folders, "--text", "the dog", "-o", tmp_path / "page.html")
    assert found.exit_code == 1
    assert re.search(rf"{re.escape(str(folders[1]))}: texts:1: ", found.output.replace("\n", ""))


def test_a_page_is_written_to_a_path_of_text(recorded, tmp_path):
    write_explorer(str(tmp_path / "page.html"), [recording_to_json(recorded("language model"))])
    assert run(tmp_path / "page.html").exit_code == 1  # it is no recording

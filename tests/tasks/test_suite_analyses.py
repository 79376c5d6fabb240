"""Analyses of suites: one for each suite, whatever its files are called, and the newest scores of each."""

import json
from unittest.mock import Mock

import pytest

from structattn.runs.store import write_analysis
from structattn.support.errors import DataError
from structattn.tasks.suite_analyses import write_suite_analysis


@pytest.fixture
def write(tmp_path):
    """Return a function that writes scores of some files, and returns the names of all analyses with their scores."""

    def write(score, *files):
        run = Mock(run_dir=tmp_path / "run", update=1, prepared=Mock(digest="0"))
        write_suite_analysis(run, "parsing-my", "parsing", {"score": score}, [tmp_path / each for each in files])
        paths = sorted((tmp_path / "run/analyses").iterdir())
        return {path.stem: json.loads(path.read_text())["score"] for path in paths}

    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "my.trees").write_text(f"(S (X {name}))\n")
    return write


def test_files_of_one_name_have_analyses_of_their_own(write):
    write(1, "a/my.trees")
    write(2, "b/my.trees")
    assert write(3, "c/my.trees") == {"parsing-my": 1, "parsing-my-2": 2, "parsing-my-3": 3}
    assert write(4, "b/my.trees") == {"parsing-my": 1, "parsing-my-2": 4, "parsing-my-3": 3}


def test_a_suite_that_was_edited_or_moved_replaces_its_scores(write, tmp_path):
    write(1, "a/my.trees", "b/my.trees")
    (tmp_path / "a/my.trees").write_text("(S (X edited))\n")
    assert write(2, "a/my.trees", "b/my.trees", "c/my.trees") == {"parsing-my": 2}
    for name in ("a", "b", "c"):
        (tmp_path / name).rename(tmp_path / f"moved_{name}")
    assert write(3, *(f"moved_{name}/my.trees" for name in ("c", "b", "a"))) == {"parsing-my": 3}


def test_analyses_that_are_damaged_or_have_no_sources_are_replaced(write, tmp_path):
    write(1, "a/my.trees")
    (tmp_path / "run/analyses/parsing-my.json").write_text("{")
    assert write(2, "b/my.trees") == {"parsing-my": 2}
    write_analysis(tmp_path / "run", "parsing-my", "parsing", {"score": 3})
    assert write(4, "b/my.trees") == {"parsing-my": 4}


def test_a_suite_that_is_gone_is_an_error(write):
    with pytest.raises(DataError, match=r"gone\.trees: cannot be read: No such file"):
        write(1, "gone.trees")

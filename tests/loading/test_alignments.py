"""The command that writes word alignments."""

import json

import pytest
from typer.testing import CliRunner

from structattn.cli.app import app


def test_a_line_for_each_translation(run_dir, tmp_path):
    arguments = ["translate", str(run_dir("translation")), "--alignments", str(tmp_path / "links")]
    text = "eins zwei\n\ndrei\n"
    shown = CliRunner().invoke(app, [*arguments, "--n-best", "2", "--json"], input=text)
    assert shown.exit_code == 0, shown.output
    found = [json.loads(line)["translations"] for line in shown.stdout.splitlines()]
    expected = [" ".join(f"{s}-{t}" for s, t in each["alignment"]) for of_line in found for each in of_line]
    assert (tmp_path / "links").read_text().split("\n") == [*expected, ""]
    assert any(expected)
    plain = CliRunner().invoke(app, arguments, input=text)
    assert len((tmp_path / "links").read_text().splitlines()) == len(plain.stdout.splitlines()) == 3
    without = CliRunner().invoke(app, [*arguments[:2], "--json"], input=text)
    assert {each["alignment"] for line in without.stdout.splitlines() for each in json.loads(line)["translations"]} == {
        None
    }


@pytest.mark.parametrize("name", ["missing/links", "."])
def test_a_file_that_cannot_be_written_is_refused_before_translating(run_dir, tmp_path, name):
    arguments = ["translate", str(run_dir("translation")), "--alignments", str(tmp_path / name)]
    result = CliRunner().invoke(app, arguments, input="eins zwei\n")
    assert result.exit_code == 2
    assert "expected a file in an existing folder" in result.stderr
    assert result.stdout == ""

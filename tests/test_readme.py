"""What the README shows runs: its Python as it stands, its commands as far as their options go."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from structattn.cli.app import app

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands():
    return [line for block in blocks("") for line in block.split("\n") if line.startswith("structattn ")]


def test_python_runs_as_it_stands():
    assert blocks("python")
    exec("\n".join(blocks("python")), {})  # one script: later blocks use the names of earlier ones


def test_there_are_commands():
    assert len(commands()) >= 6


@pytest.mark.parametrize("command", commands())
def test_commands_name_existing_options(command):
    words = shlex.split(command)[1:]
    names = [word for word in words if not word.startswith("-")]
    depth = 2 if names[0] == "prepare" else 1
    result = CliRunner().invoke(app, [*names[:depth], "--help"])
    assert result.exit_code == 0, result.output
    shown = re.sub(r"\x1b\[[0-9;]*m", "", result.output)
    for option in (word for word in words if word.startswith("--")):
        assert option in shown


def test_files_that_it_names_exist():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README) + re.findall(r"recipes/\w+\.yaml", README):
        assert (Path(__file__).parent.parent / target).exists(), target

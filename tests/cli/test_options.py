"""What the commands share: the checks of the files that options name, and of settings that are replaced."""

import os
from pathlib import Path

import pytest
from tests.program import invoke

from structattn.cli.options import check_output_files
from structattn.support.errors import UsageError


def test_each_output_is_a_file_of_its_own_and_replaces_no_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second, kept = tmp_path / "first", tmp_path / "second", tmp_path / "kept"
    kept.write_text("text")
    (tmp_path / "link").symlink_to(kept)
    check_output_files({"--a": first, "--b": second, "--c": None}, {"--d": kept, "--e": None})
    check_output_files({"--a": kept}, {})
    with pytest.raises(UsageError, match=r"^--b first: --a writes this file; expected another one$"):
        check_output_files({"--a": first, "--b": first.relative_to(tmp_path)}, {})
    with pytest.raises(UsageError, match=r"link: --d reads this file; expected another one$"):
        check_output_files({"--a": tmp_path / "link"}, {"--d": kept})


def test_a_device_may_get_several_outputs():
    nowhere = Path(os.devnull)
    check_output_files({"--a": nowhere, "--b": nowhere}, {"--c": nowhere})


@pytest.mark.parametrize(
    "command",
    ["generate run", "score run", "extract run -o new", "export run new --to onnx", "evaluate run",
     "inspect run --ablate", "inspect run --neighbours a"],
)  # fmt: skip
def test_settings_that_a_command_does_not_read_are_refused(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    done = invoke(*command.split(), "evaluation.checkpoint=last", "evaluation.beam_size=8")
    refused = "evaluation.beam_size: only data and evaluation.checkpoint can be replaced here"
    assert (done.exit_code, done.stderr) == (2, f"structattn: {refused}\n")

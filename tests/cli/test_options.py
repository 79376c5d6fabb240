"""What the commands share: the check of the files that options name."""

import os
from pathlib import Path

import pytest

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

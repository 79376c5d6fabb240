"""JSON files of runs: what stands in the way of one is not written to."""

import os

import pytest

from structattn.support.errors import DataError
from structattn.support.json_files import write_json


def test_a_pipe_in_the_place_of_a_file_is_refused(tmp_path):
    """Writing would wait for a reader."""
    os.mkfifo(tmp_path / "scores.json")
    with pytest.raises(DataError, match=r"scores\.json: is not a regular file"):
        write_json(tmp_path / "scores.json", "scores", {})

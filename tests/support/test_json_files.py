"""JSON files of runs replace what stands in their place."""

import os

from structattn.support.json_files import read_json, write_json


def test_a_pipe_in_the_place_of_a_file_is_replaced(tmp_path):
    """Writing to it would wait for a reader."""
    os.mkfifo(tmp_path / "scores.json")
    write_json(tmp_path / "scores.json", "scores", {"bleu": 1})
    assert read_json(tmp_path / "scores.json", "scores") == {"bleu": 1}


def test_a_link_is_not_followed(tmp_path):
    """In the folder of a stranger's run it may lead to any file of this user."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "scores.json").symlink_to("precious")
    write_json(tmp_path / "scores.json", "scores", {"bleu": 1})
    assert (tmp_path / "precious").read_text() == "mine"
    assert read_json(tmp_path / "scores.json", "scores") == {"bleu": 1}

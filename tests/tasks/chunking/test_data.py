"""Chunked text is read strictly; the most frequent tag of a symbol breaks ties by name."""

import pytest

from structattn.support.errors import DataError
from structattn.tasks.chunking.data import majority_tags, read_chunked_sentences
from structattn.text.reading import Notices


def read(tmp_path, text):
    path = tmp_path / "chunks.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_chunked_sentences(path, Notices())


def test_sentences_are_separated_by_blank_lines(tmp_path):
    found = read(tmp_path, "\n\nThe DT B-NP\ncat\tNN I-NP\n\n \nsat VBD B-VP\n. . O")
    assert [(each.words, each.parts_of_speech, each.chunks, each.line) for each in found] == [
        (("The", "cat"), ("DT", "NN"), ("B-NP", "I-NP"), 3),
        (("sat", "."), ("VBD", "."), ("B-VP", "O"), 7),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a DT\n", ":1: has 2 fields"),
        ("a DT O O\n", ":1: has 4 fields"),
        ("a DT B-NP\nb NN I-VP\n", ":2: 'I-VP' follows 'B-NP'"),
        ("a DT B-NP\n\nb NN I-NP\n", ":3: 'I-NP' follows 'O'"),
        ("a DT NP\n", ":1: the chunk tag 'NP'"),
        ("a DT O-NP\n", ":1: the chunk tag 'O-NP'"),
        ("a DT B-\n", ":1: the chunk tag 'B-'"),
        ("\n", "has no sentences"),
        (b"a DT \xff\n", ":1:6: byte 0xFF"),
    ],
)
def test_malformed_text_is_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


def test_majority_tags():
    pairs = [("a", "Y"), ("a", "X"), ("b", "Z"), ("b", "Z"), ("c", "Q")]
    assert majority_tags(pairs) == ({"a": "X", "b": "Z", "c": "Q"}, "Z")
    with pytest.raises(ValueError, match="no tagged symbols"):
        majority_tags([])

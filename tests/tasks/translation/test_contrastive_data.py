"""Reading of contrastive pairs; malformed files are rejected with file and line."""

import gzip
import json
from pathlib import Path

import pytest

from structattn.support.errors import DataError
from structattn.tasks.translation.contrastive import Contrast, read_contrasts
from structattn.text.reading import Notices

DISTIL = Path(__file__).resolve().parents[4] / "shared/data/distil-lingeval"
ENTRIES = [
    {"source": "The cat sees.", "reference": "Die Katze sieht.", "origin": "made up", "errors": [
        {"type": "subj_verb_agreement", "contrastive": "Die Katze sehen.", "distance": 1, "frequency": 3},
        {"type": "transliteration", "contrastive": "Die Kotze sieht."}]},
    {"source": "No.", "reference": "Nein.", "errors": []},
    {"source": "Ä\u2028[1, \"2\"].", "reference": "Ö.", "errors": [
        {"type": "np_agreement", "contrastive": "U.", "distance": None}]},
]  # fmt: skip
WITHOUT = '{"source": "a", "reference": "b", "errors": []}'


def read(path, content=None):
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_contrasts(path, Notices())


def indented(entries):
    return json.dumps(entries, indent=1, ensure_ascii=False)


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_lingeval97_gives_each_entrys_errors_in_order(tmp_path, indent, ascii_only):
    path = tmp_path / "l.json"
    text = json.dumps(ENTRIES, indent=indent, ensure_ascii=ascii_only)
    found = read(path, text)
    last = 1 if indent is None else text.count("\n", 0, text.rindex('"source"'))  # a line above its source
    assert [(each.kind, each.contrastive, each.distance) for each in found] == [
        ("subj_verb_agreement", "Die Katze sehen.", 1),
        ("transliteration", "Die Kotze sieht.", None),
        ("np_agreement", "U.", None),
    ]
    assert found[2].source == ENTRIES[2]["source"]
    assert [each.line for each in found] == [1 if indent is None else 2] * 2 + [last]
    zipped = tmp_path / "l.json.gz"
    zipped.write_bytes(gzip.compress(text.encode()))
    assert [each.contrastive for each in read(zipped)] == [each.contrastive for each in found]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"l\.json:1:1: not a JSON list of entries: expected '\[', found the end"),
        ('{"a": 1}', r":1:1: not a JSON list of entries: expected '\[', found '\{'"),
        ("[]", "holds no contrastive translations"),
        (f"[{WITHOUT}]", "holds no contrastive translations"),
        ('[\n{"source" "a"}]', r":2:11: not JSON: Expecting ':'"),
        ('[\n{"ä": ü}]', r":2:8: not JSON: Expecting value"),
        (f"[\n{WITHOUT}\n 2]", r":3:2: not a JSON list of entries: expected ',', found '2'"),
        (f"[{WITHOUT},", r":1:50: not JSON: Expecting value"),
        (f"[{WITHOUT},]", r":1:50: not JSON: Expecting value"),
        ('[\n{"a": %s}]' % ("1" * 5000), r":2:1: not JSON: .*4300"),
        (indented(ENTRIES) + "\n x", "unexpected text after the list"),
        ("[" * 100_000, "l.json:1: nested too deeply|l.json:1:.*not JSON"),
        (b"[\xff]", r":1:2: byte 0xFF is not UTF-8"),
        (indented([*ENTRIES, 7]), r"l\.json:35: found 7; expected a JSON object"),
    ],
)
def test_other_than_a_list_of_entries_is_rejected_with_its_position(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path / "l.json", content)


def test_a_distance_may_be_a_string_of_digits(tmp_path):
    errors = [{"type": "a", "contrastive": "b", "distance": distance} for distance in ("0", "12", 3)]
    found = read(tmp_path / "l.json", json.dumps([ENTRIES[0] | {"errors": errors}]))
    assert [each.distance for each in found] == [0, 12, 3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": None}, "source is None; expected text"),
        ({"reference": " "}, "reference is ' '; expected text"),
        ({"errors": {}}, r"errors is \{\}; expected a list"),
        ({"errors": [3]}, "found 3; expected a JSON object"),
        ({"errors": [{"type": "\ud800", "contrastive": "a"}]}, r"type is '\\ud800'; expected text"),
        ({"errors": [{"type": "a"}]}, "contrastive is None; expected text"),
        ({"errors": [{"contrastive": "a"}]}, "type is None; expected text"),
        ({"errors": [{"type": "a", "contrastive": "b", "distance": -1}]}, "distance is -1; expected a whole number"),
        ({"errors": [{"type": "a", "contrastive": "b", "distance": True}]}, "distance is True"),
        ({"errors": [{"type": "a", "contrastive": "b", "distance": 1.5}]}, "distance is 1.5"),
        ({"errors": [{"type": "a", "contrastive": "b", "distance": "-1"}]}, "distance is '-1'"),
        ({"errors": [{"type": "a", "contrastive": "b", "distance": "²"}]}, "distance is '²'"),
        ({"errors": [{"type": "a", "contrastive": "b", "distance": "1" * 5_000}]}, "distance is '1+…'; expected"),
    ],
)
def test_an_entry_with_a_missing_field_is_rejected_with_its_line(tmp_path, change, message):
    path = tmp_path / "l.json"
    with pytest.raises(DataError, match=rf"l\.json:3: {message}"):
        read(path, "[\n" + json.dumps(ENTRIES[0]) + ",\n" + json.dumps(ENTRIES[0] | change) + "]")


def aligned(folder, source="a\nb\n", reference="c\nd\n", contrastive="e\nf\n"):
    folder.mkdir()
    for name, text in {"src.en": source, "tgt.correct.de": reference, "tgt.incorrect.de": contrastive}.items():
        (folder / name).write_bytes(text.encode())
    return folder


def test_the_folder_of_aligned_files_gives_the_error_type(tmp_path):
    folder = aligned(tmp_path / "np.mt")
    paths = folder / "src.en", folder / "tgt.correct.de", folder / "tgt.incorrect.de"
    expected = [Contrast("a", "c", "e", "np.mt", None, paths, 1),
                Contrast("b", "d", "f", "np.mt", None, paths, 2)]  # fmt: skip
    assert read(folder) == expected
    (folder / "src.en.gz").write_bytes(gzip.compress((folder / "src.en").read_bytes()))
    (folder / "src.en").unlink()
    assert [each.source for each in read(folder)] == ["a", "b"]
    aligned(tmp_path / "affix")
    (tmp_path / "README.md").write_text("no pairs")
    (tmp_path / "elsewhere").mkdir()
    assert [each.kind for each in read(tmp_path)] == ["affix", "affix", "np.mt", "np.mt"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contrastive": "e\n"}, r"src\.en:2: has no counterpart: .*tgt\.incorrect\.de ends after 1 lines"),
        ({"source": "a\n"}, r"tgt\.correct\.de:2: has no counterpart: .*src\.en ends after 1 lines"),
        ({"reference": "c\n \n"}, r"tgt\.correct\.de:2: a blank line"),
        ({"source": "a\nb\0\n"}, r"src\.en:2:2: a NUL byte"),
    ],
)
def test_malformed_aligned_files_are_rejected_with_file_and_line(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        read(aligned(tmp_path / "np", **change))


def test_missing_and_duplicate_files_are_rejected(tmp_path):
    folder = aligned(tmp_path / "np")
    (folder / "src.cs").write_text("x\n")
    with pytest.raises(DataError, match=r"one file src\.\*, found src.cs, src.en"):
        read(folder)
    for path in folder.glob("src.*"):
        path.unlink()
    with pytest.raises(DataError, match=r"one file src\.\*, found none"):
        read(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="nor folders with such files"):
        read(tmp_path / "empty")


@pytest.mark.skipif(not DISTIL.is_dir(), reason="../shared/data/distil-lingeval is not there")
def test_the_published_files_are_read_completely():
    found = read_contrasts(DISTIL, Notices())
    assert len(found) == 24_217
    assert len({each.kind for each in found}) == 10
    assert not [each for each in found if each.reference == each.contrastive]

"""Prepared folders: round trip, atomic writing, and detection of damage."""

import errno
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from structattn.support.errors import DataError
from structattn.support.files import sha256_of_file
from structattn.text.folders.prepared import open_prepared, verify_prepared, verify_sources
from structattn.text.folders.sequences import Sequences
from structattn.text.folders.writing import source_entry, write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary

SEQUENCES = {"train": [[3, 4, 5], [], [5]], "valid": [[4]], "empty": [], "hollow": [[], []]}
LOG_PROBABILITIES = {"train": np.array([-1.5, 0.0, -(2.0**-60)])}


def write(folder, **changes):
    arguments = {
        "kind": "formal_language",
        "vocabulary": Vocabulary.from_symbols("abc"),
        "tokenizer": {"level": "character", "note": "any JSON"},
        "splits": SEQUENCES,
        "log_probabilities": LOG_PROBABILITIES,
        "extra": {"seed": 1, "lengths": [40, 80]},
    }
    write_prepared(folder, **{**arguments, **changes})
    return folder


def test_a_written_folder_is_read_back(tmp_path):
    prepared = open_prepared(write(tmp_path / "folder"))
    assert prepared.kind == "formal_language"
    assert prepared.vocabulary == Vocabulary.from_symbols("abc")
    assert prepared.tokenizer.encode("cab") == [5, 3, 4]
    assert prepared.splits == tuple(SEQUENCES)
    assert prepared.header.extra == {"seed": 1, "lengths": [40, 80]}
    assert prepared.header.tokenizer == {"level": "character", "note": "any JSON", "digest": prepared.tokenizer.digest}
    for name, expected in SEQUENCES.items():
        split = prepared.split(name)
        assert [split[index].tolist() for index in range(len(split))] == expected
        assert split.lengths.tolist() == [len(sequence) for sequence in expected]
        assert split.num_tokens == len(split.tokens) == sum(map(len, expected))
        assert split.num_targets == sum(len(sequence) + 1 for sequence in expected)
        assert prepared.header.splits[name].model_dump() == {"sequences": len(split), "tokens": split.num_tokens}
    np.testing.assert_array_equal(prepared.split("train").log_probabilities, LOG_PROBABILITIES["train"])
    assert prepared.split("valid").log_probabilities is None


def test_sequences_are_memory_mapped(tmp_path):
    sequence = open_prepared(write(tmp_path / "folder")).split("train")[0]
    assert sequence.dtype == np.int32
    assert not sequence.flags.writeable
    assert isinstance(sequence.base.base, np.memmap) or isinstance(sequence.base, np.memmap)


def test_the_same_content_gives_the_same_bytes(tmp_path):
    one, two = open_prepared(write(tmp_path / "one")), open_prepared(write(tmp_path / "two"))
    assert one.digest == two.digest
    assert (tmp_path / "one/header.json").read_bytes() == (tmp_path / "two/header.json").read_bytes()
    other = open_prepared(write(tmp_path / "three", splits={**SEQUENCES, "valid": [[5]]}))
    assert other.digest != one.digest


@pytest.mark.parametrize("flush_at", [1, 3, 1 << 20])
def test_sequences_are_written_incrementally(tmp_path, monkeypatch, flush_at):
    monkeypatch.setattr("structattn.text.folders.writing._FLUSH_AT", flush_at)
    rows = [np.array([3] * (number % 4), dtype=np.int16) for number in range(20)]
    split = open_prepared(write(tmp_path / "folder", splits={"train": iter(rows)}, log_probabilities=None)).split(
        "train"
    )
    assert split.lengths.tolist() == [number % 4 for number in range(20)]


@pytest.mark.parametrize("index", [3, -1])
def test_indices_out_of_range_are_rejected(tmp_path, index):
    with pytest.raises(IndexError, match=f"sequence {index} of 3"):
        open_prepared(write(tmp_path / "folder")).split("train")[index]


def test_an_unknown_split_is_rejected(tmp_path):
    with pytest.raises(DataError, match="no split 'test'; it has train, valid"):
        open_prepared(write(tmp_path / "folder")).split("test")


@given(st.lists(st.lists(st.integers(3, 9), max_size=4), max_size=5), st.integers(0, 30), st.integers(0, 30))
def test_any_window_of_the_stream(rows, start, stop):
    whole = [2] + [symbol for row in rows for symbol in (*row, 2)]
    offsets = np.cumsum([0, *map(len, rows)])
    sequences = Sequences(np.array([symbol for row in rows for symbol in row], dtype=np.int32), offsets)
    assert sequences.num_targets + 1 == len(whole)
    assert sequences.stream(start, stop).tolist() == whole[start:stop]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"splits": {"train": [[3], [3, 6]]}, "log_probabilities": None},
            "'train', sequence 1: id 6; expected ids 3 to 5",
        ),
        ({"splits": {"train": [[2]]}, "log_probabilities": None}, "sequence 0: id 2"),
        ({"splits": {"train": [np.array([[3]])]}, "log_probabilities": None}, r"shape \(1, 1\)"),
        ({"splits": {"../train": [[3]]}, "log_probabilities": None}, "not a valid name of a split"),
        ({"log_probabilities": {"train": np.zeros(2)}}, r"3 sequences, but log_probabilities\.bin of shape"),
        ({"log_probabilities": {"test": np.zeros(2)}}, r"splits \['test'\]"),
        ({"tokenizer": {"level": "symbol"}}, "level 'symbol' is not one of"),
    ],
)
def test_invalid_content_is_rejected_and_leaves_nothing_on_disk(tmp_path, changes, reason):
    with pytest.raises(ValueError, match=reason):
        write(tmp_path / "folder", **changes)
    assert list(tmp_path.iterdir()) == []


def ending_in(error):
    yield [3, 4]
    raise error


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), DataError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (DataError("a.txt", "refused", 3, 4), DataError),
    ],
)
def test_a_failed_write_leaves_nothing_on_disk(tmp_path, error, raised):
    with pytest.raises(raised) as caught:
        write(tmp_path / "folder", splits={"train": [[3]], "valid": ending_in(error)}, log_probabilities=None)
    assert list(tmp_path.iterdir()) == []
    if isinstance(error, OSError):
        assert str(caught.value) == (
            f"{tmp_path / 'folder'}: cannot be written; nothing was kept: No space left on device; free some disk "
            "space and run the same command again"
        )


def test_nothing_is_overwritten(tmp_path):
    folder = write(tmp_path / "folder")
    before = (folder / "header.json").read_bytes()
    with pytest.raises(DataError, match="exists and is not empty; remove it"):
        write(folder, splits={}, log_probabilities=None)
    assert (folder / "header.json").read_bytes() == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match="exists and is not a folder"):
        write(tmp_path / "file")
    with pytest.raises(DataError, match=r"file/folder: cannot be written: .*/file: Not a directory$"):
        write(tmp_path / "file/folder", splits={"train": ending_in(AssertionError("begun"))}, log_probabilities=None)
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "file"}


def test_an_empty_folder_is_accepted(tmp_path):
    (tmp_path / "folder").mkdir()
    assert len(open_prepared(write(tmp_path / "folder")).split("train")) == 3


def stored(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_truncated_or_missing_file_is_detected_on_opening(tmp_path):
    folder = write(tmp_path / "folder")
    for path in stored(folder):
        content = path.read_bytes()
        for damaged in filter(lambda damaged: damaged != content, (content[:-1], content + b"\n", b"")):
            path.write_bytes(damaged)
            if path.name == "header.json" and json.loads(damaged or b"0") == json.loads(content):
                continue  # white space around JSON
            with pytest.raises(DataError, match=path.name):
                open_prepared(folder)
        path.unlink()
        with pytest.raises(DataError, match=path.name):
            open_prepared(folder)
        path.write_bytes(content)
    open_prepared(folder)


def test_every_damaged_byte_is_detected_by_verification(tmp_path):
    folder = write(tmp_path / "folder")
    digest = open_prepared(folder).digest
    for path in stored(folder):
        content = path.read_bytes()
        for place in range(0, len(content), 1 if path.name != "header.json" else 5):
            path.write_bytes(content[:place] + bytes([content[place] ^ 0x11]) + content[place + 1 :])
            try:
                damaged = open_prepared(folder)
            except DataError:
                continue
            assert path.name == "header.json"  # in what nothing else depends on, only the folder's own digest can tell
            assert damaged.digest != digest
        path.write_bytes(content)


def test_verification_gives_both_digests(tmp_path):
    folder = write(tmp_path / "folder")
    prepared = open_prepared(folder)
    path = folder / "train/tokens.bin"
    path.write_bytes(np.array([3, 4, 5, 4], dtype="<i4").tobytes())
    with pytest.raises(DataError, match=r"was [0-9a-f]{64} and is [0-9a-f]{64}") as caught:
        verify_prepared(prepared)
    assert caught.value.path == path
    with pytest.raises(DataError, match=r"tokens\.bin: changed since it was written"):
        open_prepared(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format_version": 2}, "has format version 2; this release reads version 1"),
        ({"kind": "pairs"}, "kind"),
        ({"surplus": 1}, "surplus"),
        ({"splits": {"../x": {"sequences": 0, "tokens": 0}}}, "splits"),
        ({"splits": {"train": {"sequences": -1, "tokens": 0}}}, "sequences"),
        ({"tokenizer": {"level": "symbol"}}, "'symbol' is not one of"),
        ({"tokenizer": {"level": "word"}}, "digest"),
    ],
)
def test_an_inconsistent_header_is_rejected(tmp_path, change, reason):
    path = write(tmp_path / "folder") / "header.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError, match=reason):
        open_prepared(tmp_path / "folder")


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"null"])
def test_an_invalid_header_is_rejected(tmp_path, content):
    (tmp_path / "header.json").write_bytes(content)
    with pytest.raises(DataError, match=r"header\.json"):
        open_prepared(tmp_path)


def test_another_folder_is_rejected(tmp_path):
    with pytest.raises(DataError, match=r"not a prepared folder: it has no header\.json"):
        open_prepared(tmp_path)
    with pytest.raises(DataError, match=r"none: no such folder; expected one that `structattn prepare` has written"):
        open_prepared(tmp_path / "none")
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file: is a file; expected a folder that `structattn prepare` has written"):
        open_prepared(tmp_path / "file")


def with_source(tmp_path):
    source = tmp_path / "texts" / "train.txt"
    source.parent.mkdir()
    source.write_text("a b\n")
    folder = tmp_path / "prepared" / "folder"
    return source, write(folder, sources=[source_entry(source, "train", folder)])


def test_unchanged_sources_are_accepted_from_any_working_directory(tmp_path, monkeypatch):
    _, folder = with_source(tmp_path)
    monkeypatch.chdir(folder.parent)
    assert verify_sources(open_prepared(folder)) == ()
    moved = tmp_path.parent / f"{tmp_path.name}-moved"
    tmp_path.rename(moved)
    assert verify_sources(open_prepared(moved / "prepared/folder")) == ()


def test_a_changed_source_is_rejected_with_both_digests(tmp_path):
    source, folder = with_source(tmp_path)
    expected = open_prepared(folder).header.sources[0].sha256
    source.write_text("a c\n")
    with pytest.raises(DataError, match=f"its SHA-256 was {expected} and is [0-9a-f]{{64}}") as caught:
        verify_sources(open_prepared(folder))
    assert caught.value.path == source


def test_a_missing_source_is_reported_and_not_refused(tmp_path):
    source, folder = with_source(tmp_path)
    source.unlink()
    assert verify_sources(open_prepared(folder)) == (str(source),)


@pytest.mark.parametrize("value", [float("nan"), 0.5])
def test_log_probabilities_above_0_are_rejected(tmp_path, value):
    with pytest.raises(DataError, match=r"log_probabilities\.bin: damaged: expected log-probabilities"):
        open_prepared(write(tmp_path / "folder", log_probabilities={"train": np.array([value, -1.0, 0.0])}))


@pytest.mark.parametrize("token", [2, 6])
def test_ids_outside_the_vocabulary_are_rejected_whatever_the_digest(tmp_path, token):
    folder = write(tmp_path / "folder", splits={"train": [[3, 4, 5]]}, log_probabilities={})
    path, header = folder / "train/tokens.bin", json.loads((folder / "header.json").read_text())
    path.write_bytes(np.array([3, token, 5], dtype="<i4").tobytes())
    header["files"]["train/tokens.bin"] = sha256_of_file(path)
    (folder / "header.json").write_text(json.dumps(header))
    with pytest.raises(DataError, match=rf"tokens\.bin: has ids {min(token, 3)} to {max(token, 5)}; expected 3 to 5"):
        open_prepared(folder)

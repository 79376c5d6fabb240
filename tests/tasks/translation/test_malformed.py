"""Malformed parallel text over every reader: each case is rejected with its position or read as specified.

Both sides of every pair carry its number, so a pair that slides is seen, whatever else has happened.
"""

import functools
import gzip
import io
import os
from types import SimpleNamespace

import pytest

from structattn.support.errors import DataError
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared, verify_sources

COUNT = 9
CHARACTERS = TokenizerSettings("character")


def each(**choices):
    """Of all combinations of these, as few as hold every one run with `make test`."""
    marks = [pytest.mark.parametrize(name, values) for name, values in choices.items()]
    return lambda test: functools.reduce(lambda marked, mark: mark(marked), marks, pytest.mark.covering(1)(test))


def rows():
    return [[f"s{number} rot ß".encode(), f"t{number} red".encode()] for number in range(1, COUNT + 1)]


# A reader takes rows of (source, target) bytes, the ending of each row and what stands before all. It gives the files,
# what messages call the file of each side, and how many bytes of its line stand before the target.


def two_files(folder, pairs, ending=b"\n", start=b"", suffix=""):
    paths = []
    for side, name in enumerate(("train.de", "train.en")):
        content = start + b"".join(pair[side] + ending for pair in pairs)
        paths.append(folder / f"{name}{suffix}")
        paths[side].write_bytes(gzip.compress(content) if suffix else content)
    return paths, paths, lambda pair: 0


def table(folder, pairs, ending=b"\n", start=b"", suffix=""):
    content = start + b"".join(pair[0] + b"\t" + pair[1] + ending for pair in pairs)
    path = folder / f"train.tsv{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    return [path], [path] * 2, lambda pair: len(pair[0]) + 1


def two_files_gz(folder, pairs, ending=b"\n", start=b""):
    return two_files(folder, pairs, ending, start, ".gz")


def table_gz(folder, pairs, ending=b"\n", start=b""):
    return table(folder, pairs, ending, start, ".gz")


def standard_input(folder, pairs, ending=b"\n", start=b""):
    (path,), _, before = table(folder, pairs, ending, start)
    return [path], ["standard input"] * 2, before


READERS = {r.__name__: r for r in (two_files, two_files_gz, table, table_gz, standard_input)}
PLACES = [1, 2, 5, COUNT]


def prepare(reader, paths, tmp_path, monkeypatch, **options):
    if reader == "standard_input":
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(paths[0].read_bytes())))
        paths = ["-"]
    notices = prepare_parallel(tmp_path / "folder", {"train": paths}, tokenizer=CHARACTERS, **options)
    return open_prepared(tmp_path / "folder"), notices


def kept(prepared):
    """Return the numbers of all pairs, which must be equal on both sides and equal to the line number."""
    pairs, sides = prepared.pairs("train"), prepared.sides
    for index in range(len(pairs)):
        source, target = (
            side.decode(ids) for side, ids in zip((sides.source, sides.target), pairs[index], strict=True)
        )
        line = int(pairs.lines[index])
        assert source.startswith(f"s{line} "), (line, source)
        assert target.startswith(f"t{line} "), (line, target)
    return pairs.lines.tolist()


def everything_but(*numbers):
    return [number for number in range(1, COUNT + 1) if number not in numbers]


BROKEN = {
    "stray byte": (b"\xff", 0, "byte 0xFF is not UTF-8"),
    "lone continuation": (b"\x80", 0, "byte 0x80 is not UTF-8"),
    "cut character": (b"\xe2\x82", 0, "byte 0xE2 is not UTF-8"),
    "overlong": (b"\xc0\xaf", 0, "byte 0xC0 is not UTF-8"),
    "surrogate": (b"\xed\xa0\x80", 0, "byte 0xED is not UTF-8"),
    "NUL": (b"\0", 0, "a NUL byte"),
}


@each(reader=READERS, fault=BROKEN, side=(0, 1), line=(2, COUNT))
def test_invalid_text_is_rejected_at_its_position(tmp_path, monkeypatch, reader, fault, side, line):
    inserted, offset, reason = BROKEN[fault]
    pairs = rows()
    pairs[line - 1][side] = pairs[line - 1][side] + inserted
    paths, shown, before = READERS[reader](tmp_path, pairs)
    with pytest.raises(DataError) as caught:
        prepare(reader, paths, tmp_path, monkeypatch)
    column = len(rows()[line - 1][side]) + offset + 1 + (before(pairs[line - 1]) if side else 0)
    assert str(caught.value).startswith(f"{shown[side]}:{line}:{column}: {reason}")
    assert not (tmp_path / "folder").exists()


ORDINARY = ["\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\ufeff", "\u200b", "\x7f"]


@each(reader=READERS, character=ORDINARY, side=(0, 1))
def test_unicode_line_breaks_are_ordinary_characters(tmp_path, monkeypatch, reader, character, side):
    pairs = rows()
    for line in PLACES:
        pairs[line - 1][side] += f" {character}x{character} y".encode()
    paths, _, _ = READERS[reader](tmp_path, pairs)
    prepared, notices = prepare(reader, paths, tmp_path, monkeypatch)
    assert kept(prepared) == everything_but()
    found = prepared.sides.target.decode(prepared.pairs("train")[4][side])
    assert found.endswith(f" {character}x{character} y")
    assert notices == ()


@each(reader=READERS, side=(0, 1), line=PLACES, blank=("", " \u00a0", "\u3000"))
def test_an_empty_side_drops_its_pair_and_no_other(tmp_path, monkeypatch, reader, side, line, blank):
    pairs = rows()
    pairs[line - 1][side] = blank.encode()
    paths, _, _ = READERS[reader](tmp_path, pairs)
    prepared, notices = prepare(reader, paths, tmp_path, monkeypatch)
    assert kept(prepared) == everything_but(line)
    assert prepared.header.extra["dropped"] == {"train": {"blank": 1}}
    assert "1 of 9 pairs of train are dropped: 1 with an empty side" in notices[0]


@each(reader=READERS, start=(b"", b"\xef\xbb\xbf"), ending=(b"\n", b"\r\n"))
def test_marks_and_carriage_returns_are_dropped_with_one_notice(tmp_path, monkeypatch, reader, start, ending):
    paths, shown, _ = READERS[reader](tmp_path, rows(), ending, start)
    prepared, notices = prepare(reader, paths, tmp_path, monkeypatch)
    assert kept(prepared) == everything_but()
    source, target = prepared.pairs("train")[0]
    assert prepared.sides.source.decode(source) == "s1 rot ß"
    assert prepared.sides.target.decode(target) == "t1 red"
    expected = set()
    for name in shown:
        expected |= {f"{name}: the byte-order mark at the start is dropped"} if start else set()
        expected |= {f"{name}: lines end in CRLF; the CR is dropped"} if ending == b"\r\n" else set()
    assert set(notices) == expected
    assert len(notices) == len(expected)


@each(reader=("two_files", "two_files_gz"), side=(0, 1), missing=(1, 2, COUNT - 1, COUNT))
def test_files_of_unequal_length_are_rejected_at_the_first_line_without_a_counterpart(
    tmp_path, monkeypatch, reader, side, missing
):
    paths, _, _ = READERS[reader](tmp_path, rows())
    longer = b"".join(pair[side] + b"\n" for pair in rows()[: COUNT - missing])
    paths[side].write_bytes(gzip.compress(longer) if reader.endswith("gz") else longer)
    with pytest.raises(DataError, match=f"ends after {COUNT - missing} lines") as caught:
        prepare(reader, paths, tmp_path, monkeypatch)
    assert str(caught.value).startswith(f"{paths[1 - side]}:{COUNT - missing + 1}:1: has no counterpart: {paths[side]}")


@each(side=(0, 1), line=PLACES)
def test_a_missing_line_never_misaligns_the_rest(tmp_path, monkeypatch, side, line):
    pairs = rows()
    paths, _, _ = two_files(tmp_path, pairs)
    del pairs[line - 1]
    paths[side].write_bytes(b"".join(pair[side] + b"\n" for pair in pairs))
    with pytest.raises(DataError, match="has no counterpart"):
        prepare("two_files", paths, tmp_path, monkeypatch)


@each(side=(0, 1), line=PLACES)
def test_an_extra_line_feed_is_an_empty_line_and_makes_lengths_unequal(tmp_path, monkeypatch, side, line):
    paths, _, _ = two_files(tmp_path, rows())
    lines = [pair[side] for pair in rows()]
    lines.insert(line - 1, b"")
    paths[side].write_bytes(b"".join(text + b"\n" for text in lines))
    with pytest.raises(DataError, match=f"ends after {COUNT} lines") as caught:
        prepare("two_files", paths, tmp_path, monkeypatch)
    assert (caught.value.path, caught.value.line) == (paths[side], COUNT + 1)


@each(reader=("table", "table_gz", "standard_input"), tabs=(0, 2, 3), line=PLACES)
def test_a_line_of_a_table_without_exactly_one_tab_is_rejected(tmp_path, monkeypatch, reader, tabs, line):
    pairs = rows()
    good = b"".join(b"\t".join(pair) + b"\n" for pair in pairs[: line - 1])
    bad = b"\t".join([f"s{line} ß".encode()] * (tabs + 1))
    content = good + bad + b"\n"
    path = tmp_path / ("train.tsv.gz" if reader == "table_gz" else "train.tsv")
    path.write_bytes(gzip.compress(content) if reader == "table_gz" else content)
    with pytest.raises(DataError) as caught:
        prepare(reader, [path], tmp_path, monkeypatch)
    shown = "standard input" if reader == "standard_input" else path
    column = len(bad) + 1 if tabs == 0 else 2 * len(f"s{line} ß".encode()) + 2  # the end, or the second tab
    assert str(caught.value).startswith(f"{shown}:{line}:{column}: {tabs} tabs in a line; expected one")


@each(reader=("two_files_gz", "table_gz"), side=(0, 1), cut=(1, 8, 9, 20))
def test_a_truncated_gzip_is_rejected(tmp_path, monkeypatch, reader, side, cut):
    paths, _, _ = READERS[reader](tmp_path, rows())
    bad = paths[min(side, len(paths) - 1)]
    bad.write_bytes(bad.read_bytes()[:-cut])
    with pytest.raises(DataError, match="truncated") as caught:
        prepare(reader, paths, tmp_path, monkeypatch)
    assert caught.value.path == bad
    assert caught.value.line is not None


@each(reader=("two_files_gz", "table_gz"), content=(b"no gzip\n", b"\x1f\x8b\x08nothing"))
def test_a_file_named_gz_must_be_gzip(tmp_path, monkeypatch, reader, content):
    paths, _, _ = READERS[reader](tmp_path, rows())
    paths[-1].write_bytes(content)
    with pytest.raises(DataError, match=r"not gzip, or damaged|truncated") as caught:
        prepare(reader, paths, tmp_path, monkeypatch)
    assert caught.value.path == paths[-1]


UNREADABLE = {
    "a directory": (lambda path: path.mkdir(), "is a directory"),
    "missing": (lambda path: None, "No such file"),
    "a loop of links": (lambda path: path.symlink_to(path), "cannot be read"),
    "a pipe": (os.mkfifo, "not a regular file"),
}


@each(reader=list(READERS)[:4], kind=UNREADABLE, side=(0, 1))
def test_unreadable_files_are_rejected(tmp_path, monkeypatch, reader, kind, side):
    make, reason = UNREADABLE[kind]
    paths, _, _ = READERS[reader](tmp_path, rows())
    bad = paths[min(side, len(paths) - 1)]
    bad.unlink()
    make(bad)
    with pytest.raises(DataError, match=reason) as caught:
        prepare(reader, paths, tmp_path, monkeypatch)
    assert caught.value.path == bad


@each(reader=READERS, side=(0, 1), line=(1, COUNT))
def test_too_long_a_line_is_rejected(tmp_path, monkeypatch, reader, side, line):
    pairs = rows()
    pairs[line - 1][side] += b" x" * 30
    paths, shown, before = READERS[reader](tmp_path, pairs)
    with pytest.raises(DataError, match="characters, but max_line_tokens is 50") as caught:
        prepare(reader, paths, tmp_path, monkeypatch, max_line_tokens=50)
    column = 1 + (before(pairs[line - 1]) if side else 0)
    assert str(caught.value).startswith(f"{shown[side]}:{line}:{column}: ")


@each(reader=list(READERS)[:4], side=(0, 1))
def test_a_source_that_changed_is_rejected_on_resume(tmp_path, monkeypatch, reader, side):
    paths, _, _ = READERS[reader](tmp_path, rows())
    prepared, _ = prepare(reader, paths, tmp_path, monkeypatch)
    assert verify_sources(prepared) == ()
    changed = paths[min(side, len(paths) - 1)]
    changed.write_bytes(changed.read_bytes() + b"\n")
    with pytest.raises(DataError, match=r"changed since .* was [0-9a-f]{64} and is [0-9a-f]{64}") as caught:
        verify_sources(prepared)
    assert caught.value.path.name == changed.name


@each(reader=list(READERS)[:4], side=(0, 1))
def test_a_file_that_changes_between_the_passes_is_rejected(tmp_path, monkeypatch, reader, side):
    import structattn.tasks.translation.prepare as module

    paths, _, _ = READERS[reader](tmp_path, rows())
    changed, learn = paths[min(side, len(paths) - 1)], module.train_tokenizers

    def change_and_learn(*arguments):
        pairs = rows()
        pairs[0] = pairs[0][::-1]
        READERS[reader](tmp_path, pairs)
        return learn(*arguments)

    monkeypatch.setattr(module, "train_tokenizers", change_and_learn)
    with pytest.raises(DataError, match="changed while it was being prepared"):
        prepare(reader, paths, tmp_path, monkeypatch)
    assert changed.exists()
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("reader", READERS)
def test_a_last_line_without_a_line_feed_counts_like_the_others(tmp_path, monkeypatch, reader):
    paths, _, _ = READERS[reader](tmp_path, rows())
    for path in paths:
        content = path.read_bytes()
        path.write_bytes(gzip.compress(gzip.decompress(content)[:-1]) if path.suffix == ".gz" else content[:-1])
    prepared, notices = prepare(reader, paths, tmp_path, monkeypatch)
    assert kept(prepared) == everything_but()
    assert notices == ()

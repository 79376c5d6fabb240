"""Strict reading: only line feeds end lines, and invalid text is rejected with its position."""

import gzip
import io
import os
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structattn.support.errors import DataError
from structattn.text import reading as text_module
from structattn.text.reading import Line, Notices, read_lines

SEPARATORS = ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"]  # where str.splitlines breaks
BOM = b"\xef\xbb\xbf"


def read(path, content, notices=None):
    path.write_bytes(content)
    return [line.text for line in read_lines(path, notices or Notices())]


def refusal(path, content):
    with pytest.raises(DataError) as caught:
        read(path, content)
    return caught.value


def test_lines_are_numbered_from_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"x y\n\nz")
    assert list(read_lines(path, Notices())) == [Line(1, "x y", 0), Line(2, "", 0), Line(3, "z", 0)]


@pytest.mark.parametrize("content", [b"", BOM])
def test_an_empty_file_has_no_lines(tmp_path, content):
    assert read(tmp_path / "a.txt", content) == []


@pytest.mark.parametrize("separator", SEPARATORS)
def test_only_line_feeds_end_lines(tmp_path, separator):
    line = f"a{separator}b{separator}c"
    assert len(line.splitlines()) == 3
    assert read(tmp_path / "a.txt", f"{line}\n{line}".encode()) == [line, line]


def test_byte_order_mark_is_dropped_with_one_notice(tmp_path):
    notices = Notices()
    assert read(tmp_path / "a.txt", BOM + b"a\n" + BOM + b"b\n", notices) == ["a", "\ufeffb"]
    read(tmp_path / "a.txt", BOM + b"a\n", notices)
    assert notices.messages == (f"{tmp_path / 'a.txt'}: the byte-order mark at the start is dropped",)


def test_carriage_returns_before_line_feeds_are_dropped_with_one_notice(tmp_path):
    notices = Notices()
    assert read(tmp_path / "a.txt", b"a\r\n\r\nb\rc\r\r\nd\r", notices) == ["a", "", "b\rc\r", "d\r"]
    assert notices.messages == (f"{tmp_path / 'a.txt'}: lines end in CRLF; the CR is dropped",)


def test_carriage_returns_without_line_feeds_are_noticed(tmp_path):
    notices = Notices()
    assert read(tmp_path / "a.txt", b"a b\rc\r", notices) == ["a b\rc\r"]
    assert notices.messages == (f"{tmp_path / 'a.txt'}: is one line, which has CR; lines are expected to end in LF",)


def test_ordinary_text_gives_no_notice(tmp_path):
    notices = Notices()
    read(tmp_path / "a.txt", "a\rb\u2028\né\n".encode(), notices)
    assert notices.messages == ()


def test_notices_are_logged(tmp_path, caplog):
    read(tmp_path / "a.txt", BOM + b"a\r\n")
    assert [record.name for record in caplog.records] == ["structattn"] * 2


@pytest.mark.parametrize(
    ("content", "line", "column", "reason"),
    [
        (b"ab\ncd\xffe\n", 2, 3, "byte 0xFF is not UTF-8"),
        (BOM + b"a\xff\n", 1, 5, "byte 0xFF is not UTF-8"),
        ("é".encode() + b"\xe2\x82\n", 1, 3, "byte 0xE2 is not UTF-8"),
        (b"abc\nd\xe2\x82", 2, 2, "unexpected end of data"),  # cut in the middle of a character
        (b"a\n\xed\xa0\x80\n", 2, 1, "byte 0xED is not UTF-8"),  # a surrogate
        (b"\xc0\x80", 1, 1, "byte 0xC0 is not UTF-8"),  # an overlong NUL
        (b"ab\n\xc3\xa9\0", 2, 3, "NUL"),
        (BOM + b"\0", 1, 4, "NUL"),
        ("a\n".encode("utf-16"), 1, 1, "looks like UTF-16"),
    ],
)
def test_invalid_text_is_rejected_with_its_position(tmp_path, content, line, column, reason):
    path = tmp_path / "a.txt"
    error = refusal(path, content)
    assert (error.path, error.line, error.column) == (path, line, column)
    assert reason in error.reason
    assert str(error).startswith(f"{path}:{line}:{column}: ")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Path.mkdir, "is a directory"),
        (lambda path: None, "No such file"),
        (lambda path: path.symlink_to(path), "cannot be read"),
        (os.mkfifo, "not a regular file"),
    ],
)
def test_other_than_regular_files_are_rejected(tmp_path, make, reason):
    path = tmp_path / "a.txt"
    make(path)
    with pytest.raises(DataError, match=reason):
        list(read_lines(path, Notices()))


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_a_line_is_refused_as_soon_as_it_is_too_long(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(text_module, "MAX_LINE_BYTES", 6)
    monkeypatch.setattr(text_module, "_CHUNK", chunk)
    path = tmp_path / "a.txt"
    assert read(path, b"abcdef\n" * 5 + b"abcdef") == ["abcdef"] * 6
    path.write_bytes(b"ab\nabcdef\nabcdefg" + b"h" * 100)
    found = []
    with pytest.raises(DataError, match="the line has more than 6 bytes; expected shorter lines") as caught:
        found.extend(line.text for line in iter(read_lines(path, Notices())))
    assert caught.value.line == 3
    assert caught.value.column <= 7 + chunk + 1


def test_a_read_error_is_reported_with_its_position(tmp_path, monkeypatch):
    class Failing(io.BytesIO):
        def read1(self, size=-1):
            if self.tell() >= 6:
                raise OSError(5, "Input/output error")
            return super().read1(6)

    path = tmp_path / "a.txt"
    path.write_bytes(b"ab\ncdefgh\n")
    monkeypatch.setattr(Path, "open", lambda self, mode: Failing(b"ab\ncdefgh\n"))
    with pytest.raises(DataError, match="Input/output error") as caught:
        list(read_lines(path, Notices()))
    assert (caught.value.line, caught.value.column) == (2, 4)


CONTENT = b"".join(b"%d some words and %d more\n" % (number, number**3) for number in range(3000))


def test_gzip_is_read(tmp_path):
    assert read(tmp_path / "a.txt.gz", gzip.compress(CONTENT)) == CONTENT.decode().split("\n")[:-1]


@pytest.mark.parametrize("kept", [2, 9, 11, 1000, 20000, -9, -8, -1])
def test_truncated_gzip_is_rejected_where_the_data_end(tmp_path, kept):
    content = gzip.compress(CONTENT)[:kept]
    error = refusal(tmp_path / "a.txt.gz", content)
    assert "truncated" in error.reason
    there = zlib.decompressobj(31).decompress(content)
    assert error.line == there.count(b"\n") + 1
    assert error.column == len(there.split(b"\n")[-1]) + 1


@pytest.mark.parametrize("content", [b"no gzip at all", gzip.compress(CONTENT) + b"rubbish"], ids=["none", "longer"])
def test_damaged_gzip_is_rejected(tmp_path, content):
    assert "not gzip, or damaged" in refusal(tmp_path / "a.txt.gz", content).reason


def test_every_damaged_byte_of_gzip_data_is_detected(tmp_path):
    whole = gzip.compress(b"some words\nand some more\n", mtime=0)
    for place in range(10, len(whole)):  # the ten bytes of the header say nothing about the text
        damaged = whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :]
        refusal(tmp_path / "a.txt.gz", damaged)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"))), st.integers(1, 9))
def test_lines_do_not_depend_on_chunks(lines, chunk):
    content = "".join(f"{line}\n" for line in lines).encode()
    expected = [line.removesuffix("\r") for line in lines]
    if content.startswith(BOM):
        expected[0] = expected[0].removeprefix("\ufeff")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "_CHUNK", chunk)
        assert read(Path(folder, "a.txt"), content) == expected


def first_fault(content):
    """The offset of the first byte that is NUL or not UTF-8, -1 where there is none."""
    faults = [content.find(b"\0")] if b"\0" in content else []
    try:
        content.decode()
    except UnicodeDecodeError as error:
        faults.append(error.start)
    return min(faults, default=-1)


@given(st.binary(max_size=60) | st.text("aé\u2028\n\r\0", max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused_at_the_first_fault(content):
    fault = first_fault(content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.txt")
        if fault < 0:
            rest = content.removeprefix(BOM)
            assert len(read(path, content)) == rest.count(b"\n") + (not rest.endswith(b"\n") and rest != b"")
        else:
            error = refusal(path, content)
            line, column = content[:fault].count(b"\n") + 1, fault - content.rfind(b"\n", 0, fault)
            assert (error.line, error.column) == (line, column)

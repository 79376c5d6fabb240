"""The cache of digests never confirms a file that has changed."""

import os

import pytest

from structattn.support import digest_cache
from structattn.support.digest_cache import VARIABLE, cached_sha256
from structattn.support.files import sha256_of_file


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(digest_cache, "SMALLEST", 1)
    monkeypatch.setattr(digest_cache, "SETTLED", -1.0)
    path = tmp_path / "tokens.bin"
    path.write_bytes(b"abc")
    return path


@pytest.fixture
def reads(monkeypatch):
    """The paths of the files that were read."""
    found = []
    monkeypatch.setattr(
        digest_cache, "sha256_of_file", lambda path, limit=None: found.append(path) or sha256_of_file(path, limit)
    )
    return found


def test_an_unchanged_file_is_read_once(file, reads):
    expected = sha256_of_file(file)
    assert [cached_sha256(file, expected) for _ in range(3)] == [expected] * 3
    assert len(reads) == 1


def test_a_changed_file_is_read_again_even_with_its_old_size_and_modification_time(file, reads):
    expected, times = sha256_of_file(file), file.stat()
    cached_sha256(file, expected)
    file.write_bytes(b"abd")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert cached_sha256(file, expected) != expected
    assert len(reads) == 2


def test_the_cache_confirms_but_never_refutes(file, reads):
    """A damaged entry costs time only."""
    expected = sha256_of_file(file)
    cached_sha256(file, expected)
    for entry in (file.parent / "cache").iterdir():
        entry.write_bytes(entry.read_bytes().replace(expected.encode(), b"0" * 64))
    assert cached_sha256(file, expected) == expected
    assert len(reads) == 2


@pytest.mark.parametrize(("name", "value"), [("SMALLEST", 4), ("SETTLED", 3600.0)])
def test_small_and_recently_changed_files_are_always_read(file, reads, monkeypatch, name, value):
    monkeypatch.setattr(digest_cache, name, value)
    for _ in range(2):
        cached_sha256(file, sha256_of_file(file))
    assert len(reads) == 2


def test_an_empty_variable_turns_the_cache_off(file, reads, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    for _ in range(2):
        cached_sha256(file, sha256_of_file(file))
    assert len(reads) == 2

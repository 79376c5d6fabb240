"""Atomic files and folders, locks that end with their owner, and seeds as pure functions."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from structattn.support.errors import DataError, StructattnError
from structattn.support.files import (
    create_folder,
    flush_to_disk,
    is_empty_folder,
    let_others_read,
    path_from,
    sha256_of_file,
    write_atomically,
    write_folder_atomically,
    write_unflushed,
)
from structattn.support.locks import exclusive_lock, remove_abandoned_folders
from structattn.support.seeds import derived_seed, numpy_generator


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    target = tmp_path / "scores.json"
    write_atomically(target, "old")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


WRITER = """
import os, signal, sys
from pathlib import Path
from structattn.support.files import write_atomically
os.fsync = lambda descriptor: (print("writing", flush=True), sys.stdin.read(), os.kill(os.getpid(), signal.SIGKILL))
write_atomically(Path(sys.argv[1]), "half")
"""


def test_what_a_killed_writer_left_is_removed_and_what_another_is_writing_is_not(tmp_path):
    target = tmp_path / "scores [1].json"
    command = [sys.executable, "-c", WRITER, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"writing\n"
        write_atomically(target, "one")
        assert target.read_text() == "one"
        assert len(list(tmp_path.iterdir())) == 2
    write_atomically(target, "two")
    assert target.read_text() == "two"
    assert list(tmp_path.iterdir()) == [target]


def test_links_are_followed(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_file_to_which_a_standard_stream_is_redirected_keeps_what_it_has(tmp_path, stream):
    lines = ["import sys", "from pathlib import Path", "from structattn.support.files import write_atomically"]
    lines += [f"print('before', file=sys.{stream})", f"write_atomically(Path('/dev/{stream}'), 'content\\n')"]
    lines += [f"print('after', file=sys.{stream})"]
    (tmp_path / "file").write_text("earlier\n")
    with (tmp_path / "file").open("a") as file:
        subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, **{stream: file})
    assert (tmp_path / "file").read_text() == "earlier\nbefore\ncontent\nafter\n"


def test_pipes_and_devices_are_written_to(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", "new")
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    write_atomically(Path("/dev/null"), "new")
    assert Path("/dev/null").is_char_device()


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path, monkeypatch):
    """Locks take a missing parent for a lock that another process is removing."""

    def contended(path):
        raise BlockingIOError

    def gone(path):
        raise FileNotFoundError(2, "gone", str(path))

    monkeypatch.setattr("structattn.support.locks.lock_file", contended)
    monkeypatch.setattr(Path, "mkdir", gone)
    with pytest.raises(FileNotFoundError, match="gone"), write_folder_atomically(tmp_path / "data"):
        pass


def test_an_interrupted_folder_leaves_nothing(tmp_path):
    def write():
        with write_folder_atomically(tmp_path / "prepared") as folder:
            (folder / "half").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_finished_folder_has_its_name_and_its_files(tmp_path):
    with write_folder_atomically(tmp_path / "prepared") as folder:
        (folder / "part").mkdir()
        (folder / "part" / "tokens.bin").write_bytes(b"\0\1")
        assert not (tmp_path / "prepared").exists()
    assert (tmp_path / "prepared" / "part" / "tokens.bin").read_bytes() == b"\0\1"
    assert len(list(tmp_path.iterdir())) == 1


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
from structattn.support.files import write_folder_atomically
with write_folder_atomically(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_that_a_killed_process_left_is_removed(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED_WRITER, str(tmp_path / "prepared")], check=False)
    (tmp_path / ".prepared.original").mkdir()  # of the user
    assert len(list(tmp_path.iterdir())) == 3  # the folder and its lock
    with write_folder_atomically(tmp_path / "prepared"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"prepared", ".prepared.original"}


def test_the_folder_of_a_living_process_is_not_removed(tmp_path):
    with write_folder_atomically(tmp_path / "prepared") as first:
        (first / "first").touch()
        with write_folder_atomically(tmp_path / "prepared", previous=tmp_path / "old"):
            remove_abandoned_folders(tmp_path)
        assert (first / "first").exists()
        shutil.rmtree(tmp_path / "prepared")
    assert [path.name for path in (tmp_path / "prepared").iterdir()] == ["first"]


def test_a_complete_folder_keeps_no_lock_of_the_killed_process_that_wrote_it(tmp_path):
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / "header.json").touch()
    (tmp_path / ".prepared.0123abcd.incomplete.lock").touch()
    assert not is_empty_folder(tmp_path / "prepared")
    assert [path.name for path in tmp_path.iterdir()] == ["prepared"]


def test_a_failed_write_names_the_file(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as caught:
        write_atomically(tmp_path / "scores.json", "new")
    assert caught.value.filename == str(tmp_path / "scores.json")


def test_digest_is_sha256(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_of_file(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_held_lock_names_its_owner(tmp_path):
    with (
        exclusive_lock(tmp_path / "lock", "training"),
        pytest.raises(StructattnError, match=f"training is already running in process {os.getpid()}"),
        exclusive_lock(tmp_path / "lock", "training"),
    ):
        pass
    with exclusive_lock(tmp_path / "lock", "training"):
        pass


def test_a_full_disk_leaves_a_lock_without_its_owner(tmp_path, file_size_limit):
    with (
        file_size_limit(0),
        exclusive_lock(tmp_path / "lock", "training"),
        pytest.raises(StructattnError, match="training is already running in process unknown"),
        exclusive_lock(tmp_path / "lock", "training"),
    ):
        pass


def test_a_lock_dies_with_its_owner(tmp_path):
    program = (
        "import os, sys; from pathlib import Path; from structattn.support.locks import exclusive_lock\n"
        "with exclusive_lock(Path(sys.argv[1]), 'training'): os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")], check=False)
    assert killed.returncode == -9
    with exclusive_lock(tmp_path / "lock", "training"):
        pass


def test_data_errors_have_file_line_and_column():
    assert str(DataError(Path("a.txt"), "invalid UTF-8", line=3, column=7)) == "a.txt:3:7: invalid UTF-8"
    assert str(DataError("a.txt", "is a directory")) == "a.txt: is a directory"


def test_seeds_depend_on_every_name_and_nothing_else():
    assert derived_seed(1, "dropout") == derived_seed(1, "dropout")
    seeds = {
        derived_seed(1, "dropout"),
        derived_seed(2, "dropout"),
        derived_seed(1, "order"),
        derived_seed(1, "order", 2),
    }
    assert len(seeds) == 4
    assert numpy_generator(1, "a").integers(1 << 30) == numpy_generator(1, "a").integers(1 << 30)


def test_flushing_what_is_no_file_is_an_error_and_never_waits(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"):
        flush_to_disk(tmp_path / "pipe")


@pytest.mark.parametrize(("umask", "file_mode", "folder_mode"), [(0o077, 0o600, 0o700), (0o022, 0o644, 0o755)])
def test_the_umask_holds_for_files_and_folders(tmp_path, umask, file_mode, folder_mode):
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "one", "text")
        write_atomically(tmp_path / "one", "text again")
        with write_folder_atomically(tmp_path / "folder") as folder:
            write_unflushed(folder / "two", "text")
            write_unflushed(folder / "three", "of a library")
            (folder / "three").chmod(0o600)
            let_others_read(folder / "three")
        create_folder(tmp_path / "deep" / "folder")
        with exclusive_lock(tmp_path / "lock", "test"):
            pass
    finally:
        os.umask(before)
    modes = {path.relative_to(tmp_path): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    for path, mode in modes.items():
        assert mode == (folder_mode if (tmp_path / path).is_dir() else file_mode), path
    assert len(modes) == 7


@pytest.mark.parametrize("given", [".", "link", "empty"])
def test_an_empty_folder_is_written_into_itself(tmp_path, monkeypatch, given):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    before = (tmp_path / "empty").stat().st_ino
    monkeypatch.chdir(tmp_path / "empty" if given == "." else tmp_path)
    with write_folder_atomically(Path(given)) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "one").write_text("1")
        (folder / ".two").write_text("2")
    assert (tmp_path / "empty").stat().st_ino == before
    assert {str(path.relative_to(tmp_path)) for path in (tmp_path / "empty").rglob("*")} == {
        "empty/inner",
        "empty/inner/one",
        "empty/.two",
    }
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "link"}


@pytest.mark.parametrize("moved", range(3))
def test_a_folder_that_a_killed_process_has_begun_to_fill_is_completed(tmp_path, moved):
    """Killed after some of the content was moved to its place, and before that."""
    complete = tmp_path / ".place.01234567.complete"
    complete.mkdir()
    for number in range(2):
        ((tmp_path if number < moved else complete) / f"{number}").write_text("text")
    (tmp_path / ".place.01234567.incomplete.lock").write_text("")
    assert not is_empty_folder(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}


def test_what_a_killed_process_left_incomplete_is_removed(tmp_path):
    (tmp_path / ".place.01234567.incomplete").mkdir()
    (tmp_path / ".place.01234567.incomplete" / "one").write_text("text")
    (tmp_path / ".place.01234567.incomplete.lock").write_text("")
    assert is_empty_folder(tmp_path)
    assert not list(tmp_path.iterdir())


def full_disk(kind, folder):
    """Raise what a library raises when the disk is full."""
    if kind == "library":
        raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")
    raise OSError(errno.ENOSPC, "No space left on device", str(folder / "model") if kind == "named" else None)


@pytest.mark.parametrize("kind", ["named", "unnamed", "library"])
@pytest.mark.parametrize("exists", [False, True])
def test_a_full_disk_names_the_folder_that_was_to_be_written(tmp_path, kind, exists):
    target = tmp_path / "target"
    if exists:
        target.mkdir()
    with pytest.raises(OSError, match="No space left on device") as caught, write_folder_atomically(target) as folder:
        full_disk(kind, folder)
    assert caught.value.filename == str(target)
    assert caught.value.errno == errno.ENOSPC
    assert [path.name for path in tmp_path.rglob("*")] == ["target"] * exists


def test_paths_lead_from_a_folder_to_a_file_on_the_same_drive(tmp_path, monkeypatch):
    assert path_from(tmp_path / "a/b", tmp_path / "c.txt") == "../../c.txt"
    monkeypatch.setattr(os.path, "relpath", Mock(side_effect=ValueError("path is on mount 'C:', start on mount 'D:'")))
    assert path_from(tmp_path / "a/b", tmp_path / "c.txt") == (tmp_path / "c.txt").resolve().as_posix()

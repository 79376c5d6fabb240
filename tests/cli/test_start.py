"""The start of the program: signals at any time, closed or full standard streams, encodings."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from structattn import __version__
from structattn.support.environment import escape_control_characters
from structattn.text.folders.prepared import open_prepared

INTERRUPTED = "structattn: interrupted; run the same command again\n"
SIGNAL_DURING_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start background jobs with SIGINT ignored
number, module, *arguments = sys.argv[1:]
class Finder:
    def find_spec(self, name, *_):
        if name == module:
            try:
                os.kill(os.getpid(), int(number))
            except BaseException:  # as some modules do while they are imported
                pass
sys.meta_path.insert(0, Finder())
from structattn.cli.main import main
sys.argv = ["structattn", *arguments]
main()
"""
SIGNAL_DURING_PARSING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from structattn.cli.main import main
from typer.core import TyperGroup
TyperGroup.parse_args = lambda *_: os.kill(os.getpid(), int(sys.argv[1]))
main()
"""
PROGRAM = [sys.executable, "-m", "structattn"]


def finished(program, **options):
    return subprocess.run(program, check=False, capture_output=True, encoding="utf-8", **options)


def run_in_shell(arguments, redirection):
    return finished(["bash", "-c", shlex.join([*PROGRAM, *arguments]) + f" {redirection}"])


@pytest.mark.covering(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("module", ["typer", "structattn.settings.models"])
def test_a_signal_during_an_import_ends_the_program_at_once(number, module):
    found = finished([sys.executable, "-c", SIGNAL_DURING_IMPORT, str(int(number)), module, "list"])
    assert (found.returncode, found.stdout, found.stderr) == (75, "", INTERRUPTED)


def test_a_signal_while_arguments_are_parsed_has_the_documented_exit_code():
    found = finished([sys.executable, "-c", SIGNAL_DURING_PARSING, str(int(signal.SIGINT))])
    assert (found.returncode, found.stderr) == (75, INTERRUPTED)


def test_closed_standard_output_is_reported():
    found = run_in_shell(["--version"], ">&-")
    assert (found.returncode, found.stderr) == (1, "structattn: standard output: Bad file descriptor\n")


def test_other_closed_streams_change_nothing():
    found = run_in_shell(["--version"], "<&- 2>&-")
    assert (found.returncode, found.stdout, found.stderr) == (0, f"structattn {__version__}\n", "")


def test_a_file_never_takes_the_place_of_a_closed_stream(tmp_path):
    text = tmp_path / "text"
    text.write_text("a b\n")
    arguments = ["prepare", "text", "--train", text, "--valid", text, "--output", tmp_path / "data"]
    found = run_in_shell(map(str, arguments), ">&- 2>&- <&-")
    assert (found.returncode, found.stdout + found.stderr) == (1, "")  # the summary could not be printed
    open_prepared(tmp_path / "data")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, which other systems than Linux lack")
def test_a_full_standard_output_is_named():
    found = run_in_shell(["list"], ">/dev/full")
    assert found.returncode == 1
    assert found.stderr.startswith("structattn: standard output: No space left on device; free some disk space")
    assert len(found.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [["--version"], ["list"]])
def test_a_reader_that_has_ended_is_not_reported(arguments):
    reading, writing = os.pipe()
    os.close(reading)
    found = subprocess.run([*PROGRAM, *arguments], check=False, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (found.returncode, found.stderr) == (1, b"")


@pytest.mark.parametrize("kibibytes", [30_000, 60_000, 500_000])
@pytest.mark.parametrize("command", ["list", "evaluate nowhere"])
def test_a_small_limit_on_address_space_gives_one_line(kibibytes, command):
    """The libraries would end the process with tracebacks and messages of their own."""
    found = finished(["bash", "-c", f"ulimit -v {kibibytes}; {shlex.join(PROGRAM)} {command}"])
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == (
        f"structattn: out of memory: the limit on address space is {kibibytes >> 10} MiB; expected at least 1024 MiB; "
        "raise it (ulimit -v)\n"
    )


ASCII = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_file_names_may_have_any_bytes(tmp_path):
    folder = tmp_path / os.fsdecode("é".encode() + b"\xff\x1b[31m\n")
    folder.mkdir()
    text = folder / "text"
    text.write_text("a b\n")
    arguments = ["prepare", "text", "--train", text, "--valid", text, "--output", folder / "data"]
    found = finished([*PROGRAM, *arguments], env=ASCII)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith(rf"{tmp_path}/é\udcff\x1b[31m\n/data: sentences")


def test_names_in_settings_are_utf8_in_any_locale(tmp_path):
    (tmp_path / "settings.yaml").write_text("task: language_modeling\ndata: é\n", encoding="utf-8")
    arguments = ["train", tmp_path / "settings.yaml", "--output", tmp_path / "run"]
    found = finished([*PROGRAM, *arguments], env=ASCII)
    expected = "structattn: é: no such folder; expected one that `structattn prepare` has written\n"
    assert (found.returncode, found.stderr) == (1, expected)


def test_control_characters_are_escaped():
    assert escape_control_characters("\x1b[31mé\n\u202ea\x9b\x7f") == r"\x1b[31mé\n\u202ea\x9b\x7f"

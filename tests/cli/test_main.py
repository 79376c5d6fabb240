"""Lazy imports of the command line; errors become messages and exit codes."""

import errno
import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.program import invoke
from typer.main import get_command
from typer.models import OptionInfo
from typer.utils import get_params_from_function

from structattn import __version__
from structattn.cli import report
from structattn.cli.app import app
from structattn.cli.options import overrides_of, split_overrides
from structattn.cli.prepare import app as prepare
from structattn.support.errors import Interrupted, SettingsError, StructattnError, UsageError

COMMANDS = (["demo"], ["prepare"], ["train"], ["sweep"], ["inspect"], ["evaluate"], ["generate"], ["translate"],
            ["score"], ["predict"], ["compare"], ["explore"], ["extract"], ["report"], ["log"], ["export"], ["list"],
            ["doctor"])  # fmt: skip
KINDS = ("formal-language", "transduction", "recognition", "transformation", "text", "parallel", "trees")
HELPS = (*COMMANDS, *(["prepare", kind] for kind in KINDS))
LINES = 50  # of a screen
HELP = """
import json, sys
from typer.testing import CliRunner
from structattn.cli.app import app
results = [CliRunner().invoke(app, [*command, "--help"]) for command in [[], *json.loads(sys.argv[1])]]
print(json.dumps([[result.exit_code, result.output] for result in results]))
print(json.dumps(sorted(sys.modules)))
"""


class PanicException(BaseException):
    pass


def test_help_of_every_command_imports_nothing_heavy():
    program = [sys.executable, "-c", HELP, json.dumps(HELPS)]
    output, modules = subprocess.run(program, check=True, capture_output=True, text=True).stdout.splitlines()
    for (code, text), command in zip(json.loads(output), [[], *HELPS], strict=True):
        assert code == 0, command
        assert "Usage:" in text
    assert not {"torch", "numpy", "matplotlib"} & set(json.loads(modules))


@pytest.mark.parametrize(
    "arguments", [["list"], ["list", "--schema", "run"], ["list", "--schema", "sweep"], ["--help"], ["--version"]]
)
def test_commands_without_models_do_not_import_torch(arguments):
    program = [sys.executable, "-X", "importtime", "-m", "structattn", *arguments]
    imported = subprocess.run(program, check=True, capture_output=True, text=True).stderr
    assert "structattn.cli.main" in imported
    assert not re.search(r"\|\s+torch$", imported, re.MULTILINE)


def test_help_wraps_whole_paragraphs(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = invoke("generate", "--help").output
    assert "A string of a formal" in shown  # beyond the end of a line of the docstring


def test_commands_are_listed_in_the_order_of_a_workflow():
    listed = invoke("--help").output.partition("Commands:\n")[2]
    assert re.findall(r"^  (\w+)", listed, re.MULTILINE) == [name for (name,) in COMMANDS]
    assert len(COMMANDS) == 18


@pytest.mark.parametrize("command", HELPS, ids=" ".join)
def test_a_help_fits_a_screen_and_ends_with_examples(monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    shown = invoke(*command, "--help").output.splitlines()
    assert len(shown) <= LINES
    assert max(map(len, shown)) <= 80
    assert command == ["prepare"] or shown[-1].strip().startswith(f"structattn {' '.join(command)}")


@pytest.mark.parametrize("command", HELPS, ids=" ".join)
def test_examples_of_a_help_can_be_parsed(command):
    chosen = get_command(app)
    for name in command:
        chosen = chosen.commands[name]
    examples = re.findall(r"^ +structattn (.*)", chosen.epilog or "", re.MULTILINE)
    assert examples or command == ["prepare"]
    for example in examples:
        words = shlex.split(re.sub(r" [<>] \S+", "", example))
        chosen.make_context("structattn", words[len(command) :])


def test_options_with_the_metavar_of_their_name_name_their_flag():
    """Typer 0.27 makes --LEVEL of an option ``level`` with the metavar LEVEL."""
    found = []
    for command in [*app.registered_commands, *prepare.registered_commands]:
        for name, parameter in get_params_from_function(command.callback).items():
            option = parameter.default
            if isinstance(option, OptionInfo) and option.metavar and option.metavar.lower() == name:
                assert option.param_decls, name
                found.append(name)
    assert "level" in found


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (SettingsError("model.d_model: wrong"), 1, "structattn: model.d_model: wrong\n"),
        (UsageError("no such thing"), 2, "structattn: no such thing\n"),
        (Interrupted("stopped; resume"), 75, "structattn: stopped; resume\n"),
        (StructattnError("a\x1b[31m\nb: wrong"), 1, "structattn: a\\x1b[31m\\nb: wrong\n"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 1, "structattn: /x: Permission denied\n"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/x"),
            1,
            "/x: No space left on device; free some disk space",
        ),
        (OSError(errno.ENOMEM, "Cannot allocate memory", "/x"), 1, "structattn: out of memory; use smaller batches"),
        (ImportError("x.so: failed to map segment from shared object"), 1, "structattn: out of memory; use smaller"),
        (PanicException("MemoryError"), 1, "structattn: out of memory; use smaller batches"),
        (BrokenPipeError(), 1, ""),
    ],
)
def test_errors_become_messages_and_exit_codes(monkeypatch, tmp_path, error, code, message):
    def fail(*_):
        raise error

    monkeypatch.setattr("structattn.cli.report_page.write_report", fail)
    result = invoke("report", tmp_path, "-o", tmp_path)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_bug_keeps_its_traceback(monkeypatch, tmp_path):
    monkeypatch.setattr("structattn.cli.report_page.write_report", lambda *_: 1 / 0)
    assert isinstance(invoke("report", tmp_path, "-o", tmp_path).exception, ZeroDivisionError)
    assert report.report


@pytest.mark.parametrize(
    "arguments", [["train"], ["fly"], ["train", "x.yaml"], ["list", "--nothing"], ["demo", "--epochs", "0"]]
)
def test_bad_usage_exits_with_code_2(arguments):
    assert invoke(*arguments).exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        "prepare text --train a --train b -o c",
        "train s.yaml -o a --output b",
        "sweep s.yaml -oa -o b",
    ],
)
def test_one_of_two_paths_is_not_dropped(words):
    result = invoke(*words.split())
    assert result.exit_code == 2
    assert re.fullmatch(r"structattn: --(train|output) is given 2 times; expected once\n", result.stderr)


def test_the_last_of_two_numbers_holds():
    words = ["prepare", "recognition", "parity", "--train", "0", "--train", "3", "--valid", "0", "-o", "x"]
    assert "Invalid value for '--valid'" in invoke(*words).stderr


def test_repeatable_options_are_repeated():
    result = invoke("list", "--schema", "run", "--plugin", "none.py", "--plugin", "other.py")
    assert "none.py" in result.stderr
    assert "given" not in result.stderr


def test_version():
    assert invoke("--version").output == f"structattn {__version__}\n"


def test_a_misspelled_setting_is_rejected_with_its_path(tmp_path):
    settings = tmp_path / "settings.yaml"
    settings.write_text("task: formal_language\ndata: d\nmodel:\n  widht: 3\n")
    result = invoke("train", settings, "-o", tmp_path / "run")
    assert result.exit_code == 1
    assert "model.widht" in result.stderr
    assert not (tmp_path / "run").exists()


def test_an_override_may_be_longer_than_the_name_of_a_file():
    layers = f"model.layers=[{', '.join(['{attention: softmax, num_heads: 4}'] * 40)}]"
    assert split_overrides(["run", layers]) == ([Path("run")], [layers])


def test_a_misspelled_override_is_rejected_with_its_path(tmp_path):
    settings = tmp_path / "settings.yaml"
    settings.write_text("task: formal_language\ndata: d\n")
    result = invoke("train", settings, "training.optimizer.learning_rat=1", "-o", tmp_path / "run")
    assert result.exit_code == 1
    assert "training.optimizer.learning_rat" in result.stderr


@pytest.mark.parametrize("command", ["report", "evaluate"])
def test_a_folder_that_is_not_a_run_is_reported(tmp_path, command):
    result = invoke(command, tmp_path / "nowhere", *(["-o", tmp_path / "out"] if command == "report" else []))
    assert result.exit_code == 1
    assert "nowhere is not a run folder" in result.stderr


@pytest.mark.parametrize(
    ("words", "name", "reason"),
    [
        (["report", "nowhere"], "file", "expected a new folder, or one with an earlier report"),
        (["report", "nowhere"], "file/report", "file: Not a directory"),
        (["report", "nowhere", "--recipe", "context_free/small"], "folder", "Is a directory"),
        (["explore", "."], "folder", "expected a new file, or an earlier page of the explorer; found a folder"),
        (["explore", "."], "file/page.html", "file: Not a directory"),
        (["explore", ".", "--save"], "folder", "Is a directory"),
        (["demo"], "file", "Not a directory"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_first(monkeypatch, tmp_path, words, name, reason):
    monkeypatch.setattr("structattn.cli.demo.require_modules", lambda *_: pytest.fail("the demo begins"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    result = invoke(*words, *([] if "--save" in words else ["-o"]), tmp_path / name)
    assert result.exit_code == 1
    assert reason in result.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_a_report_does_not_replace_its_recipe(tmp_path):
    recipe = tmp_path / "recipe.json"
    recipe.write_text("{}")
    result = invoke("report", "nowhere", "--recipe", recipe, "--output", recipe)
    assert result.exit_code == 2
    assert "--recipe reads this file; expected another one" in result.stderr
    assert recipe.read_text() == "{}"


def test_links_that_lead_to_each_other_are_reported(tmp_path):
    loop = tmp_path / "loop.py"
    loop.symlink_to(loop)
    for words in (["doctor", loop], ["inspect", "nowhere", "--export", loop]):
        result = invoke(*words)
        assert result.exit_code != 0
        assert "loop" in result.stderr
        assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        (
            "report2",
            ["--recipe", "context_free/small"],
            "with --recipe it is a file; expected a name that ends in .json",
        ),
        ("report2.json", [], "a report is a folder; --recipe writes a JSON file"),
    ],
)
def test_the_name_of_a_report_says_whether_it_is_a_folder(tmp_path, name, words, reason):
    result = invoke("report", tmp_path / "nowhere", "--output", tmp_path / name, *words)
    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["report/index.html", "automaton/grammar.cfg"])
def test_the_demo_refuses_the_files_of_others_before_it_samples(monkeypatch, tmp_path, name):
    monkeypatch.setattr("structattn.cli.demo.prepared_data", lambda *_: pytest.fail("the demo samples"))
    (tmp_path / name).parent.mkdir()
    (tmp_path / name).write_text("mine")
    result = invoke("demo", "-o", tmp_path)
    assert result.exit_code == 1
    assert str(tmp_path / name.split("/")[0]) in result.stderr
    assert (tmp_path / name).read_text() == "mine"


def test_a_terminated_preparation_leaves_nothing_behind(tmp_path):
    options = ["prepare", "parallel", "--train-tsv", "-", "--hold-out", "0.1", "--output", str(tmp_path / "data")]
    with subprocess.Popen(
        [sys.executable, "-m", "structattn", *options], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdin.write("a\tb\n" * 10_000)
        process.stdin.flush()
        while not list(tmp_path.iterdir()):  # until it is at work
            assert process.poll() is None
            time.sleep(0.05)
        process.terminate()
        assert process.wait() == 75
        assert process.stderr.read() == "structattn: interrupted; run the same command again\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["2024", "no", "a: b"])
def test_data_of_a_run_may_be_replaced_by_any_folder(folder):
    assert overrides_of(["run", f"data={folder}", "evaluation.beam_size=3"]) == (Path(folder), {"beam_size": 3})

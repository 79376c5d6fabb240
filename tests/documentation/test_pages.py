"""What the pages show runs: every command and all Python, in order, in one folder per page."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

import pytest
from commands import PROGRAM
from pages import PAGES, ROOT, blocks, changed, commands
from tests.program import invoke, succeed

from structattn.operators.common.kernels import compiled_kernels
from structattn.settings.recipes import recipes

DERIVATIONS = sorted((ROOT / "src/structattn/operators").glob("*/DERIVATION.md"))
RUN = [page for page in PAGES if any(block.language in ("bash", "python", "diff") for block in blocks(page))]
# Smaller than on the page: what is replaced there, and by what.
SMALLER = {
    "README.md": {"*topics.values()": "*list(topics.values())[:9]"},
    "tutorial.md": {
        "max_updates: 1500": "max_updates: 2",
        "train: 10000, valid: 500, test_per_length: 10": "train: 50, valid: 9, test_per_length: 1",
        "restarts: 5": "restarts: 2",
    },
    "training.md": {"max_updates=20": "max_updates=3", "max_updates=40": "max_updates=6"},
    "python.md": {"training.max_updates=200": "training.max_updates=2", "steps=11": "steps=1"},
    "extraction.md": {
        "max_updates: 1500": "max_updates: 2",
        "extract runs/either -o extracted": "extract runs/either -o extracted --strings 10 --max-length 6",
        "import Recognizer": "import ExtractionSettings, Recognizer",
        'load("runs/either"))': 'load("runs/either"), ExtractionSettings(strings=10, max_length=6))',
        "prepare formal-language extracted/grammar.cfg": "prepare formal-language either.cfg",
    },
    "suites.md": {"training.max_updates=2000": "training.max_updates=2"},
}
WORDS = [
    "Everyone",
    "has",
    "the",
    "right",
    "to",
    "freedom",
    "of",
    "thought",
    "and",
    "conscience",
    "a",
    "small",
    "house",
    "two",
    "dogs",
    "run",
]
TREE = "(S (NP (DT the) (NN dog)) (VP (VBZ runs)))\n"


def text(lines, step=3):
    words = cycle(WORDS)
    return "".join(" ".join(islice(words, 5 + step * line % 7)) + "\n" for line in range(lines))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The reader's folder, with texts of their own."""
    for name, lines in (("train", 100), ("valid", 20), ("test", 6), ("sentences", 3)):
        (tmp_path / f"{name}.txt").write_text(text(lines))
    for side in ("de", "en"):
        (tmp_path / f"all.{side}").write_text(
            "".join(f"{line} {number}\n" for number, line in enumerate(text(100).splitlines()))
        )
        (tmp_path / f"new.{side}").write_text(text(2))
    for name in ("train", "valid"):
        (tmp_path / f"{name}.trees").write_text(20 * TREE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checkout(folder):
    """Copy the sources and tests that a page changes, and the kernels, which an installation has elsewhere."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    if (kernels := compiled_kernels()) is not None:
        shutil.copy(kernels[1].__file__, folder / "src/structattn/operators/common")
    return folder / "src"


@contextmanager
def server(folder, *sources):
    """Start the process that runs commands; yield its address."""
    address = folder / "commands.socket"
    script = Path(__file__).with_name("commands.py")
    process = subprocess.Popen([sys.executable, script, address, *sources], env=environment())
    try:
        while not address.exists():
            assert process.poll() is None
            time.sleep(0.1)
        yield str(address)
    finally:
        process.terminate()
        process.wait()


def environment():
    return {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The address of the process that runs the commands of all pages but those that change the sources."""
    with server(tmp_path_factory.mktemp("commands")) as address:
        yield address


def programs(folder, address):
    """Write the commands into a folder; return the environment that finds them."""
    (folder / "bin").mkdir()
    for name in ("structattn", "pytest"):
        (folder / "bin" / name).write_text(PROGRAM.format(python=sys.executable, address=address, name=name))
        (folder / "bin" / name).chmod(0o755)
    return environment() | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def smaller(page, source):
    for old, new in SMALLER.get(page.name, {}).items():
        source = source.replace(old, new)
    return source


def run_block(block, source, folder, environment, names):
    """Write a file, change one, or run commands or Python."""
    if block.caption:
        path = folder / block.caption
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(changed(path.read_text(), source) if block.language == "diff" else source)
    elif block.language == "bash":
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", source],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{source}\n{done.stdout}\n{done.stderr}"
    elif block.language == "python":
        exec(source, names)


@pytest.mark.parametrize("page", RUN, ids=[str(page.relative_to(ROOT)) for page in RUN])
def test_a_page_runs_as_it_is_written(page, folder, request):
    found = blocks(page)
    if any(block.language == "diff" for block in found):
        with server(folder, checkout(folder)) as address:
            run_page(page, found, folder, address)
    else:
        run_page(page, found, folder, request.getfixturevalue("installed"))


def run_page(page, found, folder, address):
    names, variables = {}, programs(folder, address)
    for block in found:
        if block.not_run is None and (block.caption or block.language in ("bash", "python")):
            run_block(block, smaller(page, block.text), folder, variables, names)


@pytest.mark.parametrize("page", SMALLER)
def test_what_is_made_smaller_is_on_the_page(page):
    (path,) = (path for path in PAGES if path.name == page)
    assert all(old in path.read_text(encoding="utf-8") for old in SMALLER[page])


# Pages of reference show commands one by one, in indented blocks: they name runs of other pages.
INDENTED = [
    line for page in PAGES for line in re.findall(r"^    (structattn .*)", page.read_text("utf-8"), re.MULTILINE)
]
NOT_RUN = [command for page in RUN for block in blocks(page) if block.not_run for command in commands(block)]


@pytest.mark.parametrize("command", [*NOT_RUN, *INDENTED])
def test_commands_that_do_not_run_name_existing_options(command):
    words = shlex.split(command.rstrip("\\"), comments=True)[1:]
    names = [word for word in words if not word.startswith("-")]
    result = succeed(*names[: 2 if names[0] == "prepare" else 1], "--help")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", result.output)
    assert all(option in shown for option in words if option.startswith("--"))


def test_every_block_that_does_not_run_says_why():
    unmarked = [
        (page.name, block.text)
        for page in PAGES
        for block in blocks(page)
        if block.language in ("", "bash", "sh", "console", "python")
        and block.not_run is None
        and "structattn" in block.text
        and page not in RUN
    ]
    assert unmarked == []


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_files_that_a_page_names_exist(page):
    source = page.read_text(encoding="utf-8")
    prose = re.sub(r"^( *)```.*?^\1```$|`[^`\n]*`", "", source, flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\((?!\w+:|#)([^)\s#]+)", prose)
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", DERIVATIONS, ids=[page.parent.name for page in DERIVATIONS])
def test_source_files_that_a_derivation_names_exist(page):
    named = re.findall(r"`([\w/]+\.(?:py|h|cpp))`", page.read_text(encoding="utf-8"))
    beside = page.parent.parent  # of all operators
    missing = [name for name in named if not ((ROOT / name).exists() or (beside / name).exists())]
    assert [name for name in missing if not any(page.parent.rglob(name))] == []


def test_recipes_that_pages_name_exist():
    named = [
        name
        for page in PAGES
        for name in re.findall(r"structattn (?:train|sweep) ([a-z][\w/]*)(?=[\s`])", page.read_text(encoding="utf-8"))
    ]
    assert len(named) > 20
    assert set(named) <= recipes().keys()


RENAMED = r"`(?:contrast|neighbours|parse|probe|record|schema|syntax)(?: [^`]*)?`"


def test_pages_name_no_command_that_was_renamed():
    named = {
        f"{page.name}: {name}"
        for page in PAGES
        if page.name != "changelog.md"
        for name in re.findall(RENAMED, page.read_text(encoding="utf-8"))
    }
    assert named == set()


def settings_fields():
    result = invoke("list", "--schema", "run")
    return set(re.findall(r'"(\w+)": \{', result.output))


def test_settings_that_pages_name_exist():
    known = settings_fields()
    unknown = [
        f"{page.name}: {path}"
        for page in PAGES
        for path in re.findall(r"`((?:model|training|evaluation)\.[a-z][\w.]*)", page.read_text(encoding="utf-8"))
        if page.name != "changelog.md" and not known.issuperset(path.rstrip(".").split("."))
    ]
    assert unknown == []


def test_tests_that_a_reason_names_exist():
    reasons = [block.not_run or "" for page in PAGES for block in blocks(page)]
    named = {name.rstrip(".") for reason in reasons for name in re.findall(r"tests/[\w/.]+", reason)}
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []

"""Kill commands, or fill their disk, at random moments; give them again; compare the result with an undisturbed one.

    python benchmarks/interrupted_commands.py [--count 300] [--seed 0] [--only NUMBER] [--write]

Each case runs a command on a copy of a small folder, in a process forked from one that has imported everything.
Half are ended by SIGKILL, half by a limit on the size of files. Expected: a full disk ends in one line; the same
command, given again, ends with 0 or, for a folder that was complete before the kill, says that it exists; the files are
those of an undisturbed command, apart from times, and nothing else lies beside them.

Prints a line for each fault and a summary as JSON; ``--write`` stores the summary in benchmarks/results/. ``--only``
repeats one case and keeps its folder. Exit code: 0 without a fault, 1 otherwise.
"""

import collections
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import fuzz_files
import matplotlib as mpl
import torch
import yaml

from structattn import __version__
from structattn.runs.metadata import environment, hardware

RESULTS = Path(__file__).with_name("results")
TEXT = ["--train", "train.en", "--valid", "valid.en", "--workers", "1", "--output", "out"]
PAIRS = ["--train", "train.de", "train.en", "--valid", "valid.de", "valid.en", "--workers", "1", "--output", "out"]
SIZES = ["--train", "60", "--valid", "20", "--test-per-length", "4"]
LENGTHS = ["--train-lengths", "4", "12", "--test-lengths", "4", "12"]
COMMANDS = {  # name -> folder on which it runs, arguments
    "prepare formal-language": (
        "language",
        ["prepare", "formal-language", "dyck", *SIZES, *LENGTHS, "--output", "out"],
    ),
    "prepare text": ("pairs", ["prepare", "text", "--mode", "sentences", *TEXT]),
    "prepare parallel": ("pairs", ["prepare", "parallel", "--level", "bpe", "--vocabulary-size", "60", *PAIRS]),
    "train": ("language", ["train", "settings.yaml", "--output", "out"]),
    "evaluate": ("language", ["evaluate", "run", "--split", "test", "--explain", "1"]),
    "evaluate translation": ("pairs", ["evaluate", "run", "--split", "test", "--explain", "0"]),
    "report": ("pairs", ["report", "run", "--output", "out"]),
    "explore": ("language", ["explore", "run", "--example", "0", "--save", "out.json"]),
    "export safetensors": ("language", ["export", "run", "out", "--to", "safetensors"]),
    "export huggingface": ("language", ["export", "run", "out", "--to", "huggingface"]),
    "export ctranslate2": ("pairs", ["export", "run", "out", "--to", "ctranslate2"]),
    "log": ("language", ["log", "run", "--to", "tensorboard"]),
    "sweep": ("language", ["sweep", "sweep.yaml", "--output", "out", "--workers", "1"]),
}
WITH_TIMES = ("timing.jsonl", "run.json", "lock", "table.json", "run_card.json")
EXISTS = "exists"


@dataclass(frozen=True)
class Case:
    """A command and how it is interrupted: after so many seconds, or by files of at most so many bytes."""

    number: int
    command: str
    seconds: float | None
    file_bytes: int | None


@dataclass(frozen=True)
class End:
    """How a command ended: exit status, negative for a signal, standard error, and its duration in seconds."""

    status: int
    messages: str
    seconds: float


def run(name: str, folder: Path, seconds: float | None = None, file_bytes: int | None = None) -> End:
    """Run a command in a folder; kill it after ``seconds``. A training that has begun is resumed."""
    began, words = time.monotonic(), list(COMMANDS[name][1])
    if name == "train" and (folder / "out" / "settings.yaml").exists():
        words.append("--resume")
    reader, writer = os.pipe()  # a file would be limited, too
    pid = os.fork()
    if pid == 0:
        os._exit(in_child(words, folder, writer, file_bytes))
    os.close(writer)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        messages = pipe.read().decode(errors="replace")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return End(status, messages, time.monotonic() - began)


def in_child(words: list[str], folder: Path, messages: int, file_bytes: int | None) -> int:
    """Run a command and return its exit status."""
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDWR)
    for number, descriptor in enumerate((null, null, messages)):
        os.dup2(descriptor, number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    sys.dont_write_bytecode = True
    if file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))
    try:
        return fuzz_files.exit_status(lambda: fuzz_files.app(words))
    except BaseException:  # as the interpreter would show it
        fuzz_files.traceback.print_exc()
        return 70


def contents(folder: Path) -> dict[str, str]:
    """Return the digest of each file below a folder; of those with times, and TensorBoard's, the name alone."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {
        str(path.relative_to(folder)).partition("tfevents")[0]: ""
        if path.name in WITH_TIMES or "tfevents" in path.name
        else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def fresh_copy(name: str, work: Path) -> Path:
    case = work / "case"
    shutil.rmtree(case, ignore_errors=True)
    return Path(shutil.copytree(work / COMMANDS[name][0], case))


def make_case(number: int, seed: int, undisturbed: dict[str, tuple[End, dict[str, str], int]]) -> Case:
    random = Random(f"{seed} {number}")
    name = list(COMMANDS)[number % len(COMMANDS)]
    end, _, largest = undisturbed[name]
    if random.random() < 0.5:
        return Case(number, name, random.uniform(0, 1.1 * end.seconds), None)
    return Case(number, name, None, int(largest ** random.uniform(0.3, 1)))


def fault_of(first: End, again: End, expected: dict[str, str], found: dict[str, str], case: Case) -> str | None:
    """Return what is wrong; None if nothing is."""
    if "Traceback" in first.messages + again.messages:
        return "traceback"
    if case.file_bytes is not None and first.status not in (0, 1):
        return f"a full disk ends with {first.status}"
    if again.status and not (EXISTS in again.messages and expected == found):
        return f"the repetition ends with {again.status}"
    if different := sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)):
        return f"other files: {', '.join(different[:5])}"
    return None


def interrupt(numbers: range, seed: int, work: Path) -> Iterator[tuple[Case, str | None, End, End]]:
    """Yield each case with its fault, if it has one, and how the command and its repetition ended."""
    fuzz_files.make_folders(work)
    for side in ("language", "pairs"):
        shutil.rmtree(work / side / "run" / "scores", ignore_errors=True)
        shutil.rmtree(work / side / "run" / "records", ignore_errors=True)
    settings = yaml.safe_load((work / "language" / "settings.yaml").read_text())
    (work / "language" / "sweep.yaml").write_text(yaml.safe_dump({"base": settings, "restarts": 2}))
    undisturbed = {}
    for name in COMMANDS:
        folder = fresh_copy(name, work)
        end = run(name, folder)
        if end.status:
            sys.exit(f"{name}: {end.messages}")
        largest = max(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        undisturbed[name] = end, contents(folder), largest
    for number in numbers:
        case = make_case(number, seed, undisturbed)
        folder = fresh_copy(case.command, work)
        first = run(case.command, folder, case.seconds, case.file_bytes)
        again = run(case.command, folder)
        yield case, fault_of(first, again, undisturbed[case.command][1], contents(folder), case), first, again


def summary(results: list[tuple[Case, str | None, End]], seed: int, seconds: float) -> dict[str, Any]:
    interrupted = collections.Counter(case.command for case, _, first in results if first.status)
    return {
        "benchmark": "interrupted_commands",
        "version": __version__,
        "seed": seed,
        "cases": len(results),
        "interrupted": dict(interrupted),
        "killed": sum(first.status < 0 for *_, first in results),
        "full_disks": sum(first.status > 0 for *_, first in results),
        "faults": [{**asdict(case), "fault": fault} for case, fault, _ in results if fault],
        "seconds": round(seconds, 1),
        "environment": environment(),
        "hardware": hardware(torch.device("cpu")),
    }


def main() -> int:
    arguments, numbers = fuzz_files.parse_arguments(__doc__, 300)
    torch.set_num_threads(1)
    mpl.use("Agg")
    work = Path(tempfile.mkdtemp(prefix="interrupted-"))
    results, started = [], time.monotonic()
    for case, fault, first, again in interrupt(numbers, arguments.seed, work):
        results.append((case, fault, first))
        if fault or arguments.only is not None:
            messages = [*first.messages.splitlines()[-15:], *again.messages.splitlines()[-15:]]
            print(json.dumps(asdict(case) | {"fault": fault}), *messages, sep="\n  ", flush=True)
    found = summary(results, arguments.seed, time.monotonic() - started)
    print(json.dumps(found))
    if arguments.write:
        (RESULTS / "interrupted_commands.json").write_text(json.dumps(found, indent=2) + "\n")
    if arguments.only is None:
        shutil.rmtree(work)
    else:
        print(work / "case")
    return bool(found["faults"])


if __name__ == "__main__":
    sys.exit(main())

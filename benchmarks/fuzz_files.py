"""Damage files of runs and prepared folders in many ways, and run a command on each damaged copy.

    python benchmarks/fuzz_files.py [--count 5000] [--seed 0] [--only NUMBER] [--write]

The commands are load (from Python), resume, evaluate, translate, report, export, log and explore. They run in a process
forked from one that has imported everything, and in a new one after a fault, without the cache of verified digests. In
half of the cases the digests are recomputed, as an attacker would do. Expected: one line that names a file and exit
code 1, or the result of the undamaged files. With recomputed digests another result is no fault, but a traceback, a
signal, more than 20 s, more than 1 GB, or a write through a link to a file out of the folder are.

Prints a line for each fault and a summary as JSON; ``--write`` stores the summary in benchmarks/results/. ``--only``
repeats one case and keeps its folder. Exit code: 0 without a fault, 1 otherwise.
"""

import argparse
import collections
import contextlib
import gc
import hashlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

os.environ["STRUCTATTN_DIGEST_CACHE"] = ""

import lxml.etree  # noqa: F401 - imported here to be imported once, as the modules below
import matplotlib as mpl
import matplotlib.figure
import matplotlib.pyplot as plt
import rich.table  # noqa: F401
import sacrebleu  # noqa: F401
import torch
import torch._dynamo
import yaml
from file_mutations import damage, forge_digests

import structattn
from structattn import __version__
from structattn.cli import scores_table  # noqa: F401
from structattn.cli.app import app
from structattn.runs.metadata import environment, hardware
from structattn.runs.store import CheckpointStore, checkpoint_updates
from structattn.settings.run import resolve_settings
from structattn.support.errors import StructattnError
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.training.run_training import train

RESULTS = Path(__file__).with_name("results")
SECONDS, BYTES = 20.0, 1 << 30
MARGIN = 1 << 33  # bytes of address space for a command beyond that of the process it is forked from
OUTSIDE = b"root:x:0:0:root:/root:/bin/bash\n"  # what a link out of the folder leads to
LINES = b"zwei eins\n\ndrei vier vier\nunbekannt\n"
WORDS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four"}
SIZES = {"d_model": 8, "d_ff": 8, "num_heads": 2}
ALREADY = "had already ended"
COMMANDS = {  # command -> its weight, and the folders on which it runs
    "load": (3, ("language", "pairs")),
    "resume": (3, ("unfinished", "language")),
    "evaluate": (3, ("language", "pairs")),
    "translate": (2, ("pairs",)),
    "report": (2, ("language", "pairs")),
    "export": (1, ("language", "pairs")),
    "log": (1, ("language", "pairs")),
    "explore": (1, ("language", "pairs")),
}


@dataclass(frozen=True)
class Case:
    """One damaged copy and the command that reads it."""

    number: int
    command: str
    folder: str
    path: str
    damage: str
    forged: bool


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Args:
        status: the exit status, negative for a signal.
        messages: its standard error.
        printed: digest of its standard output; a finished run that ends again after the repair of its log says "ended".
        files: digest of the files that it wrote.
        already: whether it found a finished run and wrote nothing.
        seconds: its duration.
        resident: its peak memory in bytes.
    """

    status: int
    messages: str
    printed: str
    files: str
    already: bool
    seconds: float
    resident: int


def make_folders(work: Path) -> None:
    """Write the undamaged folders, each with ``data``, ``run`` and ``settings.yaml``."""
    for make in (make_language, make_pairs):
        in_child(work, lambda make=make: make(work))


def in_child(folder: Path, call: Callable[[], object]) -> None:
    """Run a function in a child process, so that this process stays without threads of torch."""
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            call()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        sys.exit("the undamaged folders could not be made")


def make_language(work: Path) -> None:
    folder = work / "language"
    folder.mkdir()
    os.chdir(folder)
    sizes = FormalLanguageSizes(60, 20, 4, (4, 12), (4, 12))
    prepare_formal_language(Path("data"), "marked-reversal", sizes=sizes)
    training = {"max_epochs": 2, "checkpoint_every": 5, "num_threads": 1}
    tree = {"task": "formal_language", "data": "data", "model": {**SIZES, "layers": "1", "dropout": 0.2}}
    settings = resolve_settings({**tree, "training": training})
    Path("settings.yaml").write_text(yaml.safe_dump({**tree, "training": training}))
    with snapshot_after(2, folder, work / "unfinished"):
        train(settings, "run")
    command(["evaluate", "run"])


def make_pairs(work: Path) -> None:
    folder = work / "pairs"
    folder.mkdir()
    os.chdir(folder)
    splits = {name: pair_files(name, Random(name)) for name in ("train", "valid", "test")}
    prepare_parallel(Path("data"), splits, tokenizer=TokenizerSettings("bpe", joint=False, size=60))
    model = {"kind": "encoder_decoder", **SIZES, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
    training = {
        "batches": {"kind": "pairs", "max_tokens": 200},
        "loss": "token_mean",
        "max_updates": 6,
    }
    tree = {"task": "translation", "data": "data", "model": model, "training": training}
    Path("settings.yaml").write_text(yaml.safe_dump(tree))
    train(resolve_settings({**tree, "evaluation": {"beam_size": 2, "max_length": 12}}), "run")
    command(["evaluate", "run", "--explain", "0"])


def pair_files(name: str, random: Random) -> tuple[Path, Path]:
    lines = [random.choices(sorted(WORDS), k=random.randint(1, 4)) for _ in range(16)]
    sides = {"de": lines, "en": [[WORDS[word] for word in line] for line in lines]}
    for side, texts in sides.items():
        Path(f"{name}.{side}").write_text("".join(" ".join(words) + "\n" for words in texts))
    return Path(f"{name}.de"), Path(f"{name}.en")


@contextlib.contextmanager
def snapshot_after(saves: int, folder: Path, target: Path) -> Iterator[None]:
    """Copy a folder after a number of checkpoints, as a killed process would leave it."""
    save, count = CheckpointStore.save, 0

    def counted(store: CheckpointStore, *arguments: Any) -> None:
        nonlocal count
        save(store, *arguments)
        count += 1
        if count == saves:
            shutil.copytree(folder, target)

    CheckpointStore.save = counted
    yield
    CheckpointStore.save = save


def command(words: list[str]) -> None:
    """Run a command of the program; raise SystemExit."""
    with contextlib.suppress(SystemExit):
        app(words)


def commands() -> Mapping[str, Callable[[], object]]:
    return {
        "load": load,
        "resume": lambda: app(["train", "settings.yaml", "-o", "run", "--resume"]),
        "evaluate": lambda: app(["evaluate", "run", "--split", "test"]),
        "translate": lambda: app(["translate", "run"]),
        "report": lambda: app(["report", "run", "-o", "report"]),
        "export": lambda: app(["export", "run", "exported", "--to", "safetensors"]),
        "log": lambda: app(["log", "run", "--to", "tensorboard"]),
        "explore": lambda: app(["explore", "run", "--example", "0", "--save", "record.json"]),
    }


def load() -> None:
    """Load a run from Python and print everything that it gives."""
    run = structattn.load("run", device="cpu")
    print(run.settings, run.update, json.dumps(run.metadata))
    for name, tensor in run.model.state_dict().items():
        print(name, hashlib.sha256(tensor.numpy().tobytes()).hexdigest())
    for name in run.prepared.splits:
        print(name, run.prepared.split(name).tokens.tolist())


def draw(figure: matplotlib.figure.Figure, target: Any, **options: Any) -> None:
    """Lay out a figure once; writing it in three formats would take most of the time."""
    if options.get("format") == "svg":
        figure.draw_without_rendering()
        target.write("<svg></svg>")


def result_of(name: str) -> str:
    """Return a digest of what a command wrote into the current folder."""
    kinds = {
        "evaluate": ("run/scores/test*", "run/records/test*", "run/analyses/test*"),
        "resume": ("run/events.jsonl", "run/best.json", f"run/checkpoints/{newest_checkpoint()}/*"),
        "report": ("report/index.html",),
        "export": ("exported/*.safetensors",),
        "explore": ("record.json",),
    }
    digest = hashlib.sha256()
    for pattern in kinds.get(name, ()):
        for path in sorted(Path().glob(pattern)):
            digest.update(f"{path}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def newest_checkpoint() -> int:
    return max(checkpoint_updates(Path("run/checkpoints")), default=0)


class Worker:
    """A forked process that runs commands one after the other until one of them ends or stops it.

    Args:
        work: the folder of its standard streams.
    """

    def __init__(self, work: Path) -> None:
        self.work = work
        here, there = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            here.close()
            with contextlib.suppress(BaseException):
                serve(there, work)
            os._exit(0)
        there.close()
        self.socket = here

    def attempt(self, name: str, folder: Path) -> Outcome:
        """Run a command in a folder and return how it ended; stop it after 20 s."""
        started = time.monotonic()
        self.socket.sendall(f"{name} {folder}\n".encode())
        ready, _, _ = select.select([self.socket], [], [], SECONDS)
        answer = self.socket.recv(64) if ready else b""
        seconds = time.monotonic() - started
        resident = peak_memory(self.pid)
        status = int(answer) if answer else self.end()
        output = [(self.work / stream).read_text(errors="replace") for stream in ("stdout", "stderr")]
        printed = hashlib.sha256(output[0].replace(ALREADY, "ended").encode()).hexdigest()
        result = self.work / "result"
        files = result.read_text() if result.exists() else ""
        return Outcome(status, output[1], printed, files, ALREADY in output[0], seconds, resident)

    def end(self) -> int:
        """Stop the process and return its exit status, negative for a signal."""
        self.socket.close()
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return status or -signal.SIGKILL


def peak_memory(pid: int) -> int:
    """Return the largest number of resident bytes of a process since its peak was reset; 0 if it has ended."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    return 0


def serve(requests: socket.socket, work: Path) -> None:
    """Run the commands that arrive, each with new standard streams, and answer with its exit status."""
    for word in ("stdin", "stdout", "stderr"):
        (work / word).write_bytes(LINES if word == "stdin" else b"")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MARGIN, size + MARGIN))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    run = commands()
    for line in requests.makefile():
        name, _, folder = line.strip().partition(" ")
        (work / "result").unlink(missing_ok=True)
        for number, stream in enumerate(("stdin", "stdout", "stderr")):
            descriptor = os.open(work / stream, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_TRUNC)
            os.dup2(descriptor, number)
            os.close(descriptor)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak of the memory
        requests.sendall(b"%d" % run_command(run[name], name, folder, work))


def run_command(call: Callable[[], object], name: str, folder: str, work: Path) -> int:
    with open(0, closefd=False) as sys.stdin, open(1, "w", closefd=False) as sys.stdout:
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - logging may keep it
        try:
            os.chdir(folder)
            status = exit_status(call)
            sys.stdout.flush()
            if status == 0 and ALREADY.encode() not in (work / "stdout").read_bytes():
                (work / "result").write_text(result_of(name))
        except BaseException:
            traceback.print_exc()
            status = 70
        finally:
            plt.close("all")
    return status


def exit_status(call: Callable[[], object]) -> int:
    try:
        call()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except StructattnError as error:
        print(f"structattn: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def is_optional(case: Case) -> bool:
    """Whether a file was removed without which a run is whole: one of the results of ``evaluate``."""
    return case.damage == "remove" and case.path.startswith(("run/scores/", "run/records/", "run/analyses/"))


def fault_of(case: Case, outcome: Outcome, expected: Outcome, names: set[str]) -> str | None:  # noqa: PLR0911 - one line a fault
    """Return what is wrong with an outcome; None if nothing is."""
    lines = outcome.messages.splitlines()
    if outcome.seconds >= SECONDS:
        return "hang"
    if outcome.resident > BYTES or "out of memory" in outcome.messages:
        return "memory"
    if outcome.status < 0:
        return f"signal {-outcome.status}"
    if outcome.status not in (0, 1) or "Traceback" in outcome.messages:
        return "traceback"
    if outcome.status == 0:
        same = outcome.printed == expected.printed and (outcome.already or outcome.files == expected.files)
        return None if same or case.forged or is_optional(case) else "another result"
    if not lines or not all(line.startswith("structattn: ") for line in lines):
        return "not one line"
    return None if any(name in lines[-1] for name in names) else "no file named"


def make_case(number: int, seed: int, work: Path) -> tuple[Case, set[str]]:
    """Copy a folder and damage it; return the case and the names that a message may give."""
    random = Random(f"{seed} {number}")
    weights = [weight for weight, _ in COMMANDS.values()]
    name = random.choices(list(COMMANDS), weights)[0]
    folder = random.choice(COMMANDS[name][1])
    copy = work / "case"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(work / folder, copy)
    files = sorted(path for part in ("run", "data") for path in (copy / part).rglob("*") if path.is_file())
    names = {path.name for path in files} | {"run: ", "checkpoints", "data", "test", "train", "valid"}
    path = random.choice(files)
    forged = random.random() < 0.5
    kind = damage(path, work / "outside", random)
    if forged:
        forge_digests(copy / "run", copy / "data")
        names.add("is not finite")  # training on forged weights diverges, which names the update and the layer
    (work / "outside").write_bytes(OUTSIDE)  # recomputed digests are written through links
    return Case(number, name, folder, str(path.relative_to(copy)), kind, forged), names


def fuzz(numbers: range, seed: int, work: Path) -> Iterator[tuple[Case, Outcome, str | None]]:
    """Yield each case with its outcome and its fault, if it has one."""
    make_folders(work)
    for part in ("language", "pairs", "unfinished"):  # figures need no drawing to be damaged
        assert (work / part / "run" / "settings.yaml").exists()
    gc.freeze()
    expected, worker = {}, Worker(work)
    for name, (_, folders) in COMMANDS.items():
        for folder in folders:
            shutil.rmtree(work / "case", ignore_errors=True)
            shutil.copytree(work / folder, work / "case")
            with contextlib.chdir(work / "case"):
                files = result_of(name)  # also of a finished run, on which resuming writes nothing
                outcome = worker.attempt(name, work / "case")
                expected[name, folder] = replace(outcome, files=files) if outcome.already else outcome
            if expected[name, folder].status:
                sys.exit(f"{name} of {folder}: {expected[name, folder].messages}")
    for number in numbers:
        case, names = make_case(number, seed, work)
        worker = worker if worker.pid else Worker(work)
        outcome = worker.attempt(case.command, work / "case")
        fault = fault_of(case, outcome, expected[case.command, case.folder], names)
        outside = (work / "outside").read_bytes()
        yield case, outcome, fault if outside == OUTSIDE else "wrote out of the folder"


def summary(results: list[tuple[Case, Outcome, str | None]], seed: int, seconds: float) -> dict[str, Any]:
    faults = [{**asdict(case), "fault": fault} for case, _, fault in results if fault]
    outcomes = collections.Counter(
        "refused" if outcome.status else "done" for case, outcome, fault in results if not fault
    )
    return {
        "benchmark": "fuzz_files",
        "version": __version__,
        "seed": seed,
        "cases": len(results),
        "forged": sum(case.forged for case, _, _ in results),
        "commands": dict(collections.Counter(case.command for case, _, _ in results)),
        "outcomes": dict(outcomes),
        "faults": faults,
        "max_seconds": round(max(outcome.seconds for _, outcome, _ in results), 2),
        "max_resident_bytes": max(outcome.resident for _, outcome, _ in results),
        "seconds": round(seconds, 1),
        "environment": environment(),
        "hardware": hardware(torch.device("cpu")),
    }


def parse_arguments(description: str, count: int) -> tuple[argparse.Namespace, range]:
    """Return the arguments, ``count`` cases by default, and the numbers of the cases."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="number of the one case to repeat")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    only = arguments.only
    return arguments, range(arguments.count) if only is None else range(only, only + 1)


def main() -> int:
    arguments, numbers = parse_arguments(__doc__, 5000)
    torch.set_num_threads(1)
    mpl.use("Agg")
    matplotlib.figure.Figure.savefig = draw
    work = Path(tempfile.mkdtemp(prefix="fuzz-"))
    results, started = [], time.monotonic()
    for case, outcome, fault in fuzz(numbers, arguments.seed, work):
        results.append((case, outcome, fault))
        if fault or arguments.only is not None:
            print(
                json.dumps(asdict(case) | {"fault": fault}),
                *outcome.messages.splitlines()[-30:],
                sep="\n  ",
                flush=True,
            )
    found = summary(results, arguments.seed, time.monotonic() - started)
    print(json.dumps(found))
    if arguments.write:
        (RESULTS / "fuzz_files.json").write_text(json.dumps(found, indent=2) + "\n")
    if arguments.only is None:
        shutil.rmtree(work)
    else:
        print(work / "case")
    return bool(found["faults"])


if __name__ == "__main__":
    sys.exit(main())

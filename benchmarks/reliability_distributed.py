"""Kill processes that train a run together, at random moments, and compare it with an undisturbed run, byte for byte.

    python benchmarks/reliability_distributed.py [--kills 10] [--processes 2] [--write]

For DDP and FSDP each: a small transformer with stack attention and dropout learns marked reversal. Every start is that
of new processes, one of which, drawn at random, receives SIGKILL; the others must end by themselves. Prints JSON;
``--write`` stores it in benchmarks/results/. Exit code: 0 if the runs are identical, 1 otherwise.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from reliability_kills import POLL, RESULTS, digests, events_of

from structattn import __version__
from structattn.runs.folder import RunFolder
from structattn.runs.store import checkpoint_updates
from structattn.settings.run import load_settings
from structattn.support.errors import StructattnError
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.training.run_training import train

PATIENCE = 30.0  # seconds within which the processes must end after one was killed
SETTINGS = """
task: formal_language
data: {data}
model: {{d_model: 28, d_ff: 56, num_heads: 4, layers: 1.nondeterministic-2-3-5.superposition-10.1, dropout: 0.1}}
training:
  batches: {{kind: sequences, batch_size: 10}}
  gradient_accumulation_steps: {processes}
  max_epochs: 4
  checkpoint_every: 10
  num_threads: 1
  strategy: {strategy}
"""


def start(settings: Path, folder: Path, size: int) -> list[subprocess.Popen[bytes]]:
    """Start or resume the run in new processes, as torchrun does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1]), "WORLD_SIZE": str(size)}
    command = [sys.executable, __file__, "--child", str(folder), str(settings)]
    group["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # torch warns at length about connections that a kill has closed
    places = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
    return [subprocess.Popen(command, env=os.environ | group | place) for place in places]


def finish(settings: Path, folder: Path, size: int) -> None:
    """Run to completion."""
    if any(process.wait() for process in start(settings, folder, size)):
        sys.exit("the run failed; its message is above")


def kill_one(processes: list[subprocess.Popen[bytes]], folder: Path, lines: int, rank: int) -> dict[str, Any]:
    """Kill one process after the log has some lines; return how long the others needed to end."""
    while all(process.poll() is None for process in processes) and events_of(folder) < lines:
        time.sleep(POLL)
    processes[rank].send_signal(signal.SIGKILL)
    began = time.monotonic()
    statuses = [process.wait(PATIENCE) for process in processes]
    kept = checkpoint_updates(RunFolder(folder).checkpoints)
    return {
        "killed": rank,
        "statuses": statuses,
        "seconds_to_end": round(time.monotonic() - began, 2),
        "events": events_of(folder),
        "newest_checkpoint": max(kept, default=None),
    }


def compare(strategy: str, size: int, kills: int, work: Path) -> dict[str, Any]:
    settings, undisturbed, killed = work / f"{strategy}.yaml", work / f"{strategy}-0", work / f"{strategy}-kills"
    settings.write_text(SETTINGS.format(data=work / "data", processes=size, strategy=strategy), encoding="utf-8")
    finish(settings, undisturbed, size)
    lines, generator, moments = events_of(undisturbed), random.Random(1), []
    for part in range(kills):
        low, high = (lines * number // (kills + 1) for number in (part, part + 1))
        processes = start(settings, killed, size)
        moments.append(kill_one(processes, killed, generator.randint(low, high), generator.randrange(size)))
    finish(settings, killed, size)
    expected, found = digests(undisturbed), digests(killed)
    return {"moments": moments, "undisturbed": expected, "killed": found, "identical": expected == found}


def child(folder: Path, settings: Path) -> int:
    try:
        train(load_settings(settings), folder, resume="auto")
    except StructattnError as error:
        return error.exit_code
    return 0


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        return child(Path(sys.argv[2]), Path(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        sizes = FormalLanguageSizes(train=200, valid=40, test_per_length=1)
        prepare_formal_language(Path(name, "data"), "marked-reversal", sizes=sizes)
        strategies = {
            strategy: compare(strategy, arguments.processes, arguments.kills, Path(name))
            for strategy in ("ddp", "fsdp")
        }
        card = RunFolder(Path(name, "ddp-0")).read_card()
    result = {
        "benchmark": "reliability_distributed",
        "version": __version__,
        "settings": SETTINGS,
        "environment": card["environment"],
        "hardware": card["hardware"],
        "kills": arguments.kills,
        **strategies,
    }
    text = json.dumps(result, indent=2) + "\n"
    sys.stdout.write(text)
    if arguments.write:
        (RESULTS / "reliability_distributed.json").write_text(text, encoding="utf-8")
    return 0 if all(each["identical"] for each in strategies.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

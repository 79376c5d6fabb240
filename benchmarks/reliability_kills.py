"""Kill a training run at random moments and compare it with an uninterrupted run, byte for byte.

    python benchmarks/reliability_kills.py SETTINGS.yaml [path.to.field=value ...] [--kills 20] [--write NAME]

Every start is a new process, as on a cluster. Prints JSON; ``--write`` stores it in benchmarks/results/.
Exit code: 0 if the runs are identical, 1 otherwise.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from structattn import __version__
from structattn.runs.folder import RunFolder, settings_digest
from structattn.runs.store import checkpoint_updates
from structattn.settings.run import RunSettings, load_settings
from structattn.support.files import sha256_of_file
from structattn.training.run_training import train

RESULTS = Path(__file__).with_name("results")
POLL = 0.01  # seconds between checks of the event log


@dataclass(frozen=True)
class Arguments:
    """Command-line arguments."""

    settings: Path
    overrides: tuple[str, ...]
    kills: int
    seed: int
    name: str | None


def parse(words: list[str]) -> Arguments:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="path.to.field=value")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="seed of the kill times")
    parser.add_argument("--write", metavar="NAME", dest="name")
    found = parser.parse_args(words)
    return Arguments(found.settings, tuple(found.overrides), found.kills, found.seed, found.name)


def start(arguments: Arguments, folder: Path) -> subprocess.Popen[bytes]:
    """Start or resume the run in a new process."""
    command = [sys.executable, __file__, "--child", str(folder), str(arguments.settings), *arguments.overrides]
    return subprocess.Popen(command)


def finish(arguments: Arguments, folder: Path) -> None:
    """Run to completion."""
    if start(arguments, folder).wait():
        sys.exit("the run failed; its message is above")


def events_of(folder: Path) -> int:
    """Return the number of lines of the event log, a measure of progress."""
    events = RunFolder(folder).events
    return events.read_bytes().count(b"\n") if events.exists() else 0


def kill_at(arguments: Arguments, folder: Path, lines: int, delay: float) -> dict[str, Any] | None:
    """Kill the run ``delay`` seconds after its log has ``lines`` lines; return None if it ended before."""
    process = start(arguments, folder)
    while process.poll() is None and events_of(folder) < lines:
        time.sleep(POLL)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL:
        return None
    kept = checkpoint_updates(RunFolder(folder).checkpoints)
    return {"events": events_of(folder), "newest_checkpoint": max(kept, default=None)}


def kill_many(arguments: Arguments, folder: Path, lines: int) -> list[dict[str, Any]]:
    """Kill the run at random moments, one in each of equally long parts of its course."""
    moments, generator = [], random.Random(arguments.seed)
    for number in range(arguments.kills):
        low, high = (lines * part // (arguments.kills + 1) for part in (number, number + 1))
        moments.append(kill_at(arguments, folder, generator.randint(low, high), generator.uniform(0, 0.05)))
    return [moment for moment in moments if moment]


def digests(folder: Path) -> dict[str, str]:
    """Return the digests of the files of the last checkpoint and of the event log."""
    run = RunFolder(folder)
    newest = run.checkpoints / str(max(checkpoint_updates(run.checkpoints)))
    return {path.name: sha256_of_file(path) for path in [*sorted(newest.iterdir()), run.events]}


def compare(arguments: Arguments, settings: RunSettings) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as work:
        uninterrupted, killed = Path(work, "uninterrupted"), Path(work, "killed")
        finish(arguments, uninterrupted)
        moments = kill_many(arguments, killed, events_of(uninterrupted))
        finish(arguments, killed)
        card = RunFolder(uninterrupted).read_card()
        expected, found = digests(uninterrupted), digests(killed)
    return {
        "benchmark": "reliability_kills",
        "version": __version__,
        "settings": settings.model_dump(mode="json"),
        "settings_digest": settings_digest(settings),
        "data_digest": card["data"]["digest"],
        "environment": card["environment"],
        "hardware": card["hardware"],
        "kills": len(moments),
        "moments": moments,
        "uninterrupted": expected,
        "killed": found,
        "identical": expected == found,
    }


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        train(load_settings(Path(sys.argv[3]), sys.argv[4:]), Path(sys.argv[2]), resume="auto")
        return 0
    arguments = parse(sys.argv[1:])
    result = compare(arguments, load_settings(arguments.settings, arguments.overrides))
    text = json.dumps(result, indent=2) + "\n"
    sys.stdout.write(text)
    if arguments.name:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"reliability_kills-{arguments.name}.json").write_text(text, encoding="utf-8")
    return 0 if result["identical"] else 1


if __name__ == "__main__":
    sys.exit(main())

"""Compare sweeps whose workers and controllers are killed with an uninterrupted sweep, and measure a second worker.

    python benchmarks/reliability_sweeps.py [--trials 100] [--worker-kills 40] [--controller-kills 5] [--output FILE]
    python benchmarks/reliability_sweeps.py --halving --trials 50 [--worker-kills 15] [--controller-kills 5] ...

The sweep runs uninterrupted on a pool with one worker and with two (throughputs are compared), then with random kills
on a pool and on Ray. Results are equal if the run folders have the same event logs and best checkpoints, byte for byte,
and the tables are the same.

With successive halving, the trials that no rung stops are also compared with those of the same sweep without halving.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from result_file import heading, print_and_write

PROGRAM = "from structattn.cli.main import main; main()"


MODELS = {
    "Tf": "1",
    "Tf+Sup": "superposition-8",
    "Tf+Nd": "nondeterministic-2-2-3",
    "Tf-2": "2",
    "Tf+Sup-2": "1.superposition-8",
}


def sweep_of(trials: int, updates: int, halved: bool) -> dict[str, Any]:
    """Return a sweep of at least ``trials`` trials of five models on one language.

    With successive halving, the trials of a model are compared after an eighth, a quarter and half of their updates.
    """
    rungs = {"after": [updates // 8, updates // 4, updates // 2], "unit": "updates", "keep": 0.4, "at_least": 2}
    return {
        "base": {
            "task": "formal_language",
            "prepare": {
                "language": "marked-reversal",
                "train": 2000,
                "valid": 100,
                "test_per_length": 1,
                "train_lengths": [10, 20],
                "test_lengths": [10, 12],
                "seed": 1,
            },
            "model": {"d_model": 16, "d_ff": 16, "num_heads": 2},
            "training": {
                "max_updates": updates,
                "checkpoint_every": updates // 5,
                **({"validate_every": updates // 8} if halved else {}),
            },
        },
        "grid": {"model": {name: {"model.layers": layers} for name, layers in MODELS.items()}},
        "random": {"training.optimizer.learning_rate": {"low": 0.0005, "high": 0.01}},
        "restarts": -(-trials // len(MODELS)),
        **({"halving": rungs} if halved else {}),
    }


def command(file: Path, folder: Path, engine: str, workers: int) -> list[str]:
    options = ["--engine", engine, "--workers", str(workers)]
    return [sys.executable, "-c", PROGRAM, "sweep", str(file), "-o", str(folder), *options]


def processes() -> list[tuple[int, int, str]]:
    """Return the process id, parent id and command line of all processes."""
    output = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in output.splitlines()]
    return [(int(row[0]), int(row[1]), row[2]) for row in rows if len(row) == 3]


def workers_of(controller: int, engine: str) -> list[int]:
    """Return the process ids of a controller's workers."""
    rows = processes()
    if engine == "ray":
        return [pid for pid, _, words in rows if words.startswith("ray::run_job")]
    servers = {pid for pid, parent, words in rows if parent == controller and "forkserver" in words}
    return [pid for pid, parent, _ in rows if parent in servers]


def interrupted(file: Path, folder: Path, engine: str, kills: dict[str, int], seconds: float) -> dict[str, int]:
    """Run a sweep to its end with random kills; return the number of effective kills."""
    generator, hits = random.Random(1), {"worker": 0, "controller": 0}
    pause = seconds / (kills["worker"] + 1)
    while True:
        controller = subprocess.Popen(
            command(file, folder, engine, 2), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        share = seconds / (kills["controller"] + 1)
        end = time.monotonic() + share if hits["controller"] < kills["controller"] else float("inf")
        while controller.poll() is None:
            time.sleep(generator.uniform(0, 2 * pause))
            found = workers_of(controller.pid, engine) if hits["worker"] < kills["worker"] else []
            if found:
                with contextlib.suppress(ProcessLookupError):  # it may have ended in the meantime
                    os.kill(generator.choice(found), signal.SIGKILL)
                    hits["worker"] += 1
            if time.monotonic() > end and controller.poll() is None:
                controller.kill()
                hits["controller"] += 1
                break
        message = controller.communicate()[1].decode()
        if controller.returncode == 0:
            return hits
        if controller.returncode != -signal.SIGKILL:
            raise RuntimeError(message)


def outcome(folder: Path) -> dict[str, Any]:
    """Return the event logs, best checkpoints and table of a sweep."""
    runs = sorted((folder / "runs").iterdir())
    logs = {run.name: ((run / "events.jsonl").read_bytes(), (run / "best.json").read_bytes()) for run in runs}
    return {"runs": logs, "table": json.loads((folder / "table.json").read_text())}


def survivors(folder: Path) -> list[str]:
    """Return the names of the trials that no rung has stopped."""
    rows = json.loads((folder / "table.json").read_text())
    return [trial["name"] for row in rows for trial in row["savings"]["trials"] if not trial["stopped"]]


def timed(arguments: list[str]) -> float:
    start = time.monotonic()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def write_sweep(file: Path, sweep: dict[str, Any]) -> Path:
    file.write_text(yaml.safe_dump(sweep, sort_keys=False))
    return file


def compare_with_full(folder: Path, expected: dict[str, Any], trials: int, updates: int) -> dict[str, Any]:
    """Train all trials to their end; return whether the survivors of the rungs equal them, and the time it took."""
    sweep = sweep_of(trials, updates, halved=False)
    sweep["base"]["training"]["validate_every"] = updates // 8
    seconds = timed(command(write_sweep(folder / "full.yaml", sweep), folder / "full", "pool", 1))
    full, names = outcome(folder / "full")["runs"], survivors(folder / "one")
    return {
        "survivors": len(names),
        "survivors_equal_full": all(full[name] == expected["runs"][name] for name in names),
        "seconds_full_one_worker": seconds,
    }


def main() -> None:
    """Run and compare all sweeps, print the results, and write them to a file if one is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--updates", type=int, default=1200, help="updates per trial; 1200 take some three seconds")
    parser.add_argument("--halving", action="store_true", help="with successive halving")
    parser.add_argument("--worker-kills", type=int, default=40)
    parser.add_argument("--controller-kills", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write the results to this JSON file")
    arguments = parser.parse_args()
    kills = {"worker": arguments.worker_kills, "controller": arguments.controller_kills}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = write_sweep(folder / "sweep.yaml", sweep_of(arguments.trials, arguments.updates, arguments.halving))
        one = timed(command(file, folder / "one", "pool", 1))
        two = timed(command(file, folder / "two", "pool", 2))
        expected = outcome(folder / "one")
        trials = len(expected["runs"])
        result: dict[str, Any] = {
            **heading(
                f"python benchmarks/reliability_sweeps.py {'--halving ' if arguments.halving else ''}"
                f"--trials {trials} --updates {arguments.updates} "
                f"--worker-kills {arguments.worker_kills} --controller-kills {arguments.controller_kills}"
            ),
            "trials": trials,
            "seconds_one_worker": one,
            "seconds_two_workers": two,
            "trials_per_hour_one_worker": trials / one * 3600,
            "trials_per_hour_two_workers": trials / two * 3600,
            "throughput_ratio": one / two,
            "two_workers_equal_one": outcome(folder / "two") == expected,
        }
        if arguments.halving:
            result |= compare_with_full(folder, expected, arguments.trials, arguments.updates)
        for engine in ("pool", "ray"):
            hits = interrupted(file, folder / engine, engine, kills, two)
            result[engine] = {"effective_kills": hits, "equal": outcome(folder / engine) == expected}
    print_and_write(result, arguments.output)


if __name__ == "__main__":
    main()

"""Speed and peak memory of `structattn prepare text` and `prepare parallel` on text that this script makes.

    python benchmarks/preparation.py [--megabytes 1000] [--pairs 500000] [--workers 2] [--levels word ...] [--write]

Words are random letters with Zipf-Mandelbrot frequencies, proportional to 1 / (rank + 2.7)^1.2, of a million types:
141,000 types among two million words (WikiText-2, whose rare words are <unk>, has 33,000). Each preparation is one
run of the command, from its start to its end: it reads the text twice, trains the tokenizer, writes the folder and
verifies it. Memory is the proportional set size (shared pages are divided among their processes) of the command and its
workers, summed and sampled every 0.1 s.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from result_file import heading, print_and_write

RESULTS = Path(__file__).parent / "results" / "preparation.json"
NUM_TYPES, EXPONENT, SHIFT, LINE_WORDS = 1_000_000, 1.2, 2.7, 25
LETTERS = np.frombuffer(b"eeeeaaaooiinnssttrrllcduupmgbfhvkwyjxqz", np.uint8)
COMMAND = [sys.executable, "-c", "import sys; from structattn.cli.main import main; sys.exit(main())", "prepare"]


def word_types(rng: np.random.Generator) -> list[bytes]:
    """Return distinct words, the shorter ones among the frequent ones."""
    lengths = np.clip(rng.poisson(np.linspace(3, 8, NUM_TYPES + 100_000)), 1, 20)
    letters = rng.choice(LETTERS, int(lengths.sum())).tobytes()
    ends = np.cumsum(lengths).tolist()
    words = dict.fromkeys(letters[start:end] for start, end in zip([0, *ends], ends, strict=False))
    return list(words)[:NUM_TYPES]


def write_text(path: Path, num_bytes: int, words: list[bytes], rng: np.random.Generator) -> None:
    """Write lines of 25 words until the file has at least ``num_bytes`` bytes."""
    cumulative = np.cumsum(1 / (np.arange(1, len(words) + 1) + SHIFT) ** EXPONENT)
    with path.open("wb") as file:
        while file.tell() < num_bytes:
            drawn = np.searchsorted(cumulative, rng.random(LINE_WORDS * 4000) * cumulative[-1]).tolist()
            found = [words[index] for index in drawn]
            lines = (b" ".join(found[at : at + LINE_WORDS]) for at in range(0, len(found), LINE_WORDS))
            file.write(b"".join(line + b"\n" for line in lines))


def write_lines(path: Path, source: Path, count: int) -> None:
    """Write the first lines of another file."""
    with source.open("rb") as read, path.open("wb") as file:
        file.writelines(line for line, _ in zip(read, range(count), strict=False))


def proportional_memory(pid: int) -> int:
    """Return the proportional set size of a process and its descendants in bytes."""
    total, pending = 0, [pid]
    while pending:
        folder = Path(f"/proc/{pending.pop()}")
        try:
            fields = dict(line.split(":", 1) for line in (folder / "smaps_rollup").read_text().splitlines()[1:])
            total += 1024 * int(fields["Pss"].split()[0])
            for task in (folder / "task").iterdir():
                pending += map(int, (task / "children").read_text().split())
        except (OSError, KeyError):  # it has ended
            continue
    return total


def measure(arguments: list[str]) -> tuple[float, float]:
    """Run a preparation; return its seconds and its peak memory in MB."""
    start, peak = time.perf_counter(), 0
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, proportional_memory(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"prepare {' '.join(arguments)} failed")
    return time.perf_counter() - start, peak / 1e6


def main() -> None:
    """Measure every level and parallel text; print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=1000, help="size of the training text")
    parser.add_argument("--pairs", type=int, default=500_000, help="number of training pairs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--levels", nargs="*", default=["word", "byte", "character", "bpe", "sentencepiece-bpe"])
    parser.add_argument("--folder", type=Path, help="where to write the text and the prepared folders")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/preparation.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        found = measure_all(Path(name), options)
    print_and_write(found, RESULTS if options.write else None)


def measure_all(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the speed and memory of each level and of parallel text."""
    rng = np.random.default_rng(0)
    words, train, valid = word_types(rng), folder / "train.txt", folder / "valid.txt"
    write_text(train, int(options.megabytes * 1e6), words, rng)
    write_lines(valid, train, 2000)
    megabytes, workers = train.stat().st_size / 1e6, ["--workers", str(options.workers)]
    found: dict[str, Any] = {
        **heading(
            f"python benchmarks/preparation.py --megabytes {options.megabytes:g} --pairs {options.pairs} --write"
        ),
        "cores": len(os.sched_getaffinity(0)),
        "workers": options.workers,
        "megabytes": megabytes,
        "text": {},
    }
    for level in options.levels:
        given = ["--train", train, "--valid", valid, "--mode", "stream", "--level", level]
        seconds, peak = measure(["text", *map(str, given), *workers, "--output", str(folder / level)])
        found["text"][level] = {"MB/s": megabytes / seconds, "seconds": seconds, "peak memory in MB": peak}
        subprocess.run(["rm", "-r", folder / level], check=True)
    if options.pairs:
        sides = folder / "source.txt", folder / "target.txt"
        for side in sides:
            write_lines(side, train, options.pairs)
        given = ["--train", *sides, "--hold-out", "0.01", "--vocabulary-size", "8000"]
        seconds, peak = measure(["parallel", *map(str, given), "--output", str(folder / "pairs")])
        found["parallel"] = {"pairs/s": options.pairs / seconds, "seconds": seconds, "peak memory in MB": peak}
    return found


if __name__ == "__main__":
    main()

"""Efficiency of translation systems: sentences per second and largest training batch (You et al. 2020, section 5).

    python benchmarks/translation_efficiency.py RUN ... [--sentences 1000] [--memory 3] [--output FILE.json]

Speed: the test set is translated with the run's settings (beam 4 in the paper's recipes) in batches of 256, once
as warm-up and then five times; runs of the systems are interleaved, and the mean is reported, as in the paper.

Largest batch: number of source and target tokens including padding, found by bisection to 2 %. A batch fits if a whole
update (forward, backward and optimizer) stays within the memory limit: peak memory of the process on a CPU, memory
reserved by torch on a GPU. Batches consist of the longest training pairs.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from memory import resident_bytes
from result_file import write_results
from rich.console import Console
from rich.progress import track
from rich.table import Table

from structattn.loading.runs import open_run
from structattn.loading.trained_run import TrainedRun
from structattn.runs.folder import RunFolder
from structattn.tasks.translation.predict import Translator
from structattn.tasks.translation.translators import make_translator
from structattn.training.assembly import initial_learner, make_plan
from structattn.training.loop import Update, training_step

GIB = 2**30
SENTENCES_AT_ONCE, TIMED = 256, 5
MIN_TOKENS, PRECISION = 256, 1.02


def seconds_to_translate(translator: Translator, lines: Sequence[str]) -> float:
    start = time.perf_counter()
    for first in range(0, len(lines), SENTENCES_AT_ONCE):
        translator(lines[first : first + SENTENCES_AT_ONCE])
    return time.perf_counter() - start


def speeds(runs: list[TrainedRun], count: int) -> list[dict[str, Any]]:
    """Measure sentences per second of each run."""
    lines = [run.prepared.texts("test", "source")[:count] for run in runs]
    translators = [replace(make_translator([run]), batch_tokens=2**30) for run in runs]
    taken: list[list[float]] = [[] for _ in runs]
    for _ in track(range(TIMED + 1), "Translating"):
        for times, translator, text in zip(taken, translators, lines, strict=True):
            times.append(seconds_to_translate(translator, text))
    each = [[len(text) / seconds for seconds in times[1:]] for times, text in zip(taken, lines, strict=True)]
    return [{"sentences/s": statistics.mean(found), "deviation": statistics.stdev(found)} for found in each]


def memory_of_update(folder: Path, tokens: int) -> float:
    """Return the GiB that an update on a batch of ``tokens`` tokens needs; infinity if a GPU runs out of memory."""
    settings = open_run(folder).settings
    plan = make_plan(RunFolder(folder), settings)
    learner, pairs = initial_learner(plan), plan.prepared.pairs("train")
    source, target = pairs.source.lengths + 1, pairs.target.lengths + 1
    longest = np.argsort(-(source + target), kind="stable")
    sizes = np.arange(1, len(longest) + 1) * (
        np.maximum.accumulate(source[longest]) + np.maximum.accumulate(target[longest])
    )
    batch = plan.task.batch(longest[: max(int((sizes <= tokens).sum()), 1)])
    try:
        training_step(learner, plan.task, Update(1, [batch], 1e-4, settings.training.max_grad_norm))
    except torch.cuda.OutOfMemoryError:
        return float("inf")
    if learner.device.type == "cuda":
        return torch.cuda.max_memory_reserved() / GIB
    return resident_bytes() / GIB


def fits(folder: Path, tokens: int, memory: float) -> bool:
    """Return whether an update on ``tokens`` tokens fits into ``memory`` GiB, measured in a separate process."""
    command = [sys.executable, __file__, str(folder), "--update-of", str(tokens)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # errors go to stderr
    if done.returncode:
        raise SystemExit(done.returncode)
    return float(done.stdout) <= memory


def all_tokens(run: TrainedRun) -> int:
    """Return the tokens of a batch of all training pairs."""
    pairs = run.prepared.pairs("train")
    return len(pairs) * int(pairs.source.lengths.max() + pairs.target.lengths.max() + 2)


def largest(fit: Callable[[int], bool], most: int) -> int:
    """Return the largest number of tokens that fits, by doubling and bisection; 0 if ``MIN_TOKENS`` do not fit.

    Returns ``most`` if the whole training set fits.
    """
    if not fit(MIN_TOKENS):
        return 0
    low, high = MIN_TOKENS, 2 * MIN_TOKENS
    while high < most and fit(high):
        low, high = high, 2 * high
    if high >= most and fit(most):
        return most
    while high / low > PRECISION:
        middle = round((low * high) ** 0.5)
        low, high = (middle, high) if fit(middle) else (low, middle)
    return low


def named(folder: Path) -> str:
    """Return the name of a run; for a run of a sweep, its cell."""
    index = folder.parent.parent / "trials.json"
    if index.exists():
        return " ".join(json.loads(index.read_bytes())[folder.name]["cell"].values())
    return folder.name


def report(rows: list[dict[str, Any]], memory: float) -> None:
    table = Table("system", "sentences/s", "of the first", "±", f"tokens in {memory:g} GiB", "of the first")
    for row in rows:
        ratios = [f"{row[name] / rows[0][name]:.2f}" if rows[0][name] else "" for name in ("sentences/s", "tokens")]
        speed, deviation = f"{row['sentences/s']:.1f}", f"{row['deviation']:.1f}"
        tokens = f"{'at least ' if row['whole training set'] else ''}{row['tokens']:,}"
        table.add_row(row["system"], speed, ratios[0], deviation, tokens, ratios[1])
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--memory", type=float, default=3.0, help="GiB")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--update-of", type=int, help=argparse.SUPPRESS)  # for the process that `fits` starts
    arguments = parser.parse_args()
    if arguments.update_of:
        print(memory_of_update(arguments.runs[0], arguments.update_of))
        return
    runs = [open_run(folder) for folder in arguments.runs]
    rows = speeds(runs, arguments.sentences)
    for run, row in zip(track(runs, "Searching the largest batch"), rows, strict=True):
        most = all_tokens(run)
        tokens = largest(lambda count, run=run: fits(run.run_dir, count, arguments.memory), most)
        row |= {"system": named(run.run_dir), "tokens": tokens, "whole training set": tokens == most}
        row["precision"] = run.settings.training.precision
    report(rows, arguments.memory)
    about = {"sentences": arguments.sentences, "memory_gib": arguments.memory, "timed": TIMED}
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    about |= {"torch": torch.__version__, "device": device, "threads": torch.get_num_threads()}
    write_results(about | {"results": rows}, arguments.output)


if __name__ == "__main__":
    main()

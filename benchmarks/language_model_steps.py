"""Speed and memory of training the language models of DuSell & Chiang (2024, section 7) on two cores, in one run.

    python benchmarks/language_model_steps.py [--rounds 40] [--threads 2] [--output FILE.json]

d_model 256, 5 layers, 8 heads, 1024 hidden units, tied embeddings of 23,835 ids; Tf, Tf+Sup (m 511) and Tf+Nd (3
states, 3 symbols, m 10), the stack in the third layer. Batches of at most 512 tokens: of sentences whose lengths are
distributed like those of the Penn Treebank, and of sequences of 128 positions. The words are random.

Speed: whole updates. In each round all models train on the same batch, in an order that rotates; the ratio is that of
the times of all rounds, its interval a bootstrap over the rounds. Memory: the peak of a process that trains one model,
above that of the process before it builds the model.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from memory import resident_bytes
from result_file import heading, write_results
from rich.console import Console
from rich.progress import track
from rich.table import Table

from structattn.runs.folder import RunFolder
from structattn.settings.run import resolve_settings
from structattn.support.devices import processor_name
from structattn.support.special_tokens import FIRST_SYMBOL
from structattn.tasks.task import Task
from structattn.text.folders.writing import write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary
from structattn.training.assembly import initial_learner, make_plan
from structattn.training.learner import Learner
from structattn.training.loop import Update, training_step

MODELS = {"Tf": "5", "Tf+Sup": "2.superposition-511.2", "Tf+Nd": "2.nondeterministic-3-3-10.2"}
SIZES = {"d_model": 256, "d_ff": 1024, "num_heads": 8, "tied_embeddings": True, "init_scale": 0.01}
WORDS, TOKENS, SEED = 23_832, 512, 1
WARM_UP, MEMORY_UPDATES = 3, 12


@dataclass(frozen=True)
class Trainer:
    """A model in training on prepared text."""

    learner: Learner
    task: Task[Any]

    @classmethod
    def of(cls, model: str, data: Path) -> "Trainer":
        """Build a model for a prepared folder."""
        training = {"batches": {"kind": "tokens", "max_tokens": TOKENS}}
        tree = {"task": "language_modeling", "data": str(data), "training": training}
        plan = make_plan(RunFolder(data / "run"), resolve_settings(tree | {"model": SIZES | {"layers": MODELS[model]}}))
        return cls(initial_learner(plan), plan.task)

    def seconds(self, indices: np.ndarray) -> float:
        """Return the time of an update on one batch."""
        update = Update(1, [self.task.batch(indices)], 0.0001, 5.0)
        start = time.perf_counter()
        training_step(self.learner, self.task, update)
        return time.perf_counter() - start


def prepare(folder: Path, kind: str) -> Path:
    """Write random text: sentences of 20.9 ± 10 words, or sequences of 127 words, so of 128 positions with <bos>."""
    generator = np.random.default_rng(SEED)
    lengths = np.full(400, 127) if kind == "length 128" else generator.gamma(4.3, 4.9, 4000).round().clip(1, 80)
    ranks = (generator.random(int(lengths.sum())) ** 4 * WORDS).astype(np.int32)  # some words are frequent
    rows = np.split(ranks + FIRST_SYMBOL, np.cumsum(lengths.astype(int))[:-1])
    vocabulary = Vocabulary.from_symbols([f"w{index}" for index in range(WORDS)])
    splits = {"train": rows, "valid": rows[:4]}
    write_prepared(folder / kind, kind="sentences", vocabulary=vocabulary, tokenizer={"level": "word"}, splits=splits)
    return folder / kind


def round_seconds(data: Path, rounds: int, what: str) -> tuple[dict[str, np.ndarray], int]:
    """Return the seconds of each model's updates, one for each round, and the tokens of all rounds."""
    trainers = {model: Trainer.of(model, data) for model in MODELS}
    plan = trainers["Tf"].task.training_batches(0)
    seconds: dict[str, list[float]] = {model: [] for model in MODELS}
    tokens = []
    for number in track(range(WARM_UP + rounds), what):
        indices = plan[number % len(plan)]
        order = list(MODELS)[number % len(MODELS) :] + list(MODELS)[: number % len(MODELS)]
        for model in order:
            seconds[model].append(trainers[model].seconds(indices))
        tokens.append(trainers["Tf"].task.num_tokens(trainers["Tf"].task.batch(indices)))
    return {model: np.array(each[WARM_UP:]) for model, each in seconds.items()}, sum(tokens[WARM_UP:])


def speeds(data: Path, rounds: int, what: str) -> dict[str, Any]:
    """Return tokens per second of each model, and its speed relative to Tf with a 95 % interval."""
    times, tokens = round_seconds(data, rounds, what)
    return {
        model: {"tokens_per_second": tokens / float(each.sum())} | relative_speed(times["Tf"], each)
        for model, each in times.items()
    }


def relative_speed(base: np.ndarray, other: np.ndarray) -> dict[str, Any]:
    """Return Σ base / Σ other, and its bootstrap interval over the rounds."""
    drawn = np.random.default_rng(SEED).integers(len(base), size=(2000, len(base)))
    ratios = base[drawn].sum(1) / other[drawn].sum(1)
    low, high = np.quantile(ratios, (0.025, 0.975)).tolist()
    return {"speed_over_Tf": float(base.sum() / other.sum()), "interval": [low, high]}


def peak_memory(model: str, data: Path, threads: int) -> int:
    """Return the bytes by which training a model raises the peak memory of a new process."""
    command = [sys.executable, __file__, "--memory-of", model, str(data), "--threads", str(threads)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_memory(model: str, data: Path) -> None:
    """Train for some updates on the largest batches and print how far that has raised the peak memory."""
    before = resident_bytes("VmRSS")
    trainer = Trainer.of(model, data)
    for indices in trainer.task.training_batches(0)[:MEMORY_UPDATES]:
        trainer.seconds(indices)
    print(resident_bytes() - before)


def show(results: dict[str, dict[str, Any]]) -> None:
    """Print a table."""
    table = Table("batches of", "model", "tokens/s", "speed / Tf", "95 % interval", "memory, MB", "memory / Tf")
    for kind, models in results.items():
        for model, found in models.items():
            low, high = found["interval"]
            table.add_row(
                kind,
                model,
                f"{found['tokens_per_second']:,.0f}",
                f"{found['speed_over_Tf']:.3f}",
                f"{low:.3f} to {high:.3f}",
                f"{found['peak_memory'] / 1e6:.0f}",
                f"{found['peak_memory'] / models['Tf']['peak_memory']:.3f}",
            )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="updates of each model")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    parser.add_argument("--memory-of", nargs=2, metavar=("MODEL", "DATA"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.memory_of:
        print_memory(arguments.memory_of[0], Path(arguments.memory_of[1]))
        return
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("sentences", "length 128"):
            data = prepare(Path(folder), kind)
            results[kind] = speeds(data, arguments.rounds, f"Training on {kind}")
            for model, found in results[kind].items():
                found["peak_memory"] = peak_memory(model, data, arguments.threads)
    show(results)
    content = heading(f"python benchmarks/language_model_steps.py --rounds {arguments.rounds}") | {
        "processor": processor_name(),
        "threads": arguments.threads,
        "torch": torch.__version__,
        "results": results,
    }
    write_results(content, arguments.output)


if __name__ == "__main__":
    main()

"""The ratios of speed that this library aims at, in one table: ``make bench``, about five minutes on two cores.

    OMP_NUM_THREADS=1 python benchmarks/ratios.py [--rounds 5] [--output FILE.json]

Each row is the speed of one thing relative to another that does the same work, or to the plainer model beside it. Both
are measured in every round, one after the other, so that slow phases of the machine affect both; the median and the
quartiles are those of the rounds' ratios. One thread and processor time; for language models two threads and wall time.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cases
import ctranslate2
import decoding_peers
import language_model_steps
import numpy as np
import torch
import transformers
from plain_eager import plain_step
from result_file import heading, write_results
from rich.console import Console
from rich.table import Table
from training_steps import MODELS, interleaved, step_of_model
from transformers import MarianConfig, MarianMTModel

from structattn.support.devices import processor_name
from structattn.support.files import temporary_folder

STEP_LENGTH, STEP_ROUNDS, LANGUAGE_MODEL_ROUNDS = 60, 51, 20
REFERENCE_LENGTH, LONG = 60, (256, 1024)
Work = Callable[[], object]


@dataclass(frozen=True)
class Ratio:
    """The speed of one thing relative to another: median and quartiles over the rounds, and what is aimed at."""

    group: str
    what: str
    relative_to: str
    median: float
    quartiles: tuple[float, float]
    target: float | None

    @classmethod
    def of(cls, group: str, what: str, relative_to: str, rounds: np.ndarray, target: float | None = None) -> "Ratio":
        """Summarize the ratios of all rounds."""
        low, median, high = np.quantile(rounds, (0.25, 0.5, 0.75)).tolist()
        return cls(group, what, relative_to, median, (low, high), target)


def marian(size: dict[str, Any]) -> decoding_peers.Run:
    """Return beam search of transformers' MarianMT with random weights."""
    shapes = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", size[side]["layers"]),
            ("ffn_dim", size["d_ff"]),
            ("attention_heads", size["num_heads"]),
        )
    }
    ids = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None}
    sizes = {"vocab_size": decoding_peers.VOCABULARY, "d_model": size["d_model"]}
    model = MarianMTModel(MarianConfig(**sizes, **shapes, **ids)).eval()
    length = decoding_peers.LENGTH
    return lambda sources, beam: model.generate(
        torch.tensor(sources), num_beams=beam, min_new_tokens=length, max_new_tokens=length
    ).tolist()


def decoding(rounds: int) -> Iterator[Ratio]:
    """Beam search, compared with CTranslate2 and transformers, and hard-coded attention with softmax attention."""
    with temporary_folder() as folder, ExitStack() as kept:
        methods = decoding_peers.methods(folder, list(decoding_peers.SIZES), kept)
        run = marian(decoding_peers.SIZES["d 512"])
        methods.append(decoding_peers.Method("MarianMT", "d 512", run, exported=False))
        rows = decoding_peers.measured(methods, [1, 4], rounds, batches=1)
    speed = {(row["method"], row["size"], row["beam"]): np.array(row["all"]) for row in rows}
    compared = (
        ("structattn float32", "CTranslate2 float32", 1.0),
        ("structattn float32", "MarianMT", None),
        ("structattn hc-sa", "structattn float32", 1.1),
        ("structattn sh-x", "structattn float32", 1.3),
    )
    for (what, other, target), size, beam in itertools.product(compared, decoding_peers.SIZES, (1, 4)):
        if {(what, size, beam), (other, size, beam)} <= speed.keys():
            ratios = speed[what, size, beam] / speed[other, size, beam]
            yield Ratio.of(f"beam search, {size}, beam {beam}", what, other, ratios, target)


def training_steps(rounds: int) -> Iterator[Ratio]:
    """Training steps at the sizes of DuSell & Chiang (2024, section 6)."""
    with temporary_folder() as folder:
        steps = {name: step_of_model(name, STEP_LENGTH, folder) for name in MODELS}
        modules = ("Tf", "Tf+Nd 2-3-5")
        steps |= {f"{name} by modules": step_of_model(name, STEP_LENGTH, folder, accelerated=False) for name in modules}
        seconds = interleaved({"plain eager Tf": plain_step(), **steps}, rounds, "training steps")
    targets = {"Tf": 1 / 0.35, "Tf+Nd 2-3-5": 1 / 1.25, "LSTM+Nd 2-3-5": 1 / 2.5}
    for name in steps:
        base = "plain eager Tf" if name in ("Tf", "Tf by modules") else name.partition("+")[0]
        if name != base:
            yield Ratio.of(
                "training step, ten strings of 60", name, base, seconds[base] / seconds[name], targets.get(name)
            )


def language_models(rounds: int) -> Iterator[Ratio]:
    """Training steps at the sizes of DuSell & Chiang (2024, section 7)."""
    torch.set_num_threads(2)
    targets = {"sentences": {"Tf+Sup": 1.0, "Tf+Nd": 0.95}, "length 128": {"Tf+Sup": 1.0, "Tf+Nd": 0.9}}
    with temporary_folder() as folder:
        for kind, aims in targets.items():
            data = language_model_steps.prepare(folder, kind)
            seconds, _ = language_model_steps.round_seconds(data, rounds, f"language models, {kind}")
            for name, aim in aims.items():
                yield Ratio.of(f"language model, {kind}", name, "Tf", seconds["Tf"] / seconds[name], aim)
    torch.set_num_threads(1)


def operators(rounds: int) -> Iterator[Ratio]:
    """Stack operators, compared with their recurrences in torch and with a product of two float64 matrices."""
    works = {
        "nondeterministic": cases.nondeterministic(REFERENCE_LENGTH),
        "nondeterministic recurrences": cases.nondeterministic(REFERENCE_LENGTH, implementation="reference"),
        "superposition": cases.superposition(),
        "superposition recurrences": cases.superposition(implementation="reference"),
    }
    seconds = interleaved(works, rounds, "stacks and their recurrences")
    for name, length in (("nondeterministic", REFERENCE_LENGTH), ("superposition", 100)):
        ratios = seconds[f"{name} recurrences"] / seconds[name]
        yield Ratio.of(f"{name} stack, n = {length}", "kernel", "recurrences in torch", ratios)
    long: dict[str, Work] = {str(length): cases.nondeterministic(length) for length in LONG}
    seconds = interleaved(long | {"product": cases.matrix_product()}, rounds, "long stacks")
    for length in LONG:
        rate = cases.operations(length, 2, 3) / seconds[str(length)]
        ratios = rate * seconds["product"] / (2 * 1500**3)
        yield Ratio.of(
            f"nondeterministic stack, n = {length}",
            "operations per second in floats",
            "a float64 matrix product's",
            ratios,
            0.6,
        )


def show(ratios: list[Ratio]) -> None:
    """Print one table, with a title above each group."""
    table = Table("speed of ... relative to ...", "median", "quartiles", "target", title=processor_name())
    for group, rows in itertools.groupby(ratios, lambda ratio: ratio.group):
        table.add_section()
        table.add_row(f"[bold]{group}")
        for ratio in rows:
            low, high = ratio.quartiles
            target = "" if ratio.target is None else f"{ratio.target:.2f}"
            table.add_row(
                f"{ratio.what} / {ratio.relative_to}", f"{ratio.median:.2f}", f"{low:.2f} to {high:.2f}", target
            )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="of beam search and of the operators")
    parser.add_argument("--output", type=Path, help="write the results to this JSON file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    ratios = [
        *training_steps(STEP_ROUNDS),
        *operators(arguments.rounds),
        *language_models(LANGUAGE_MODEL_ROUNDS),
        *decoding(arguments.rounds),
    ]
    show(ratios)
    content = heading(f"OMP_NUM_THREADS=1 python benchmarks/ratios.py --rounds {arguments.rounds}") | {
        "processor": processor_name(),
        "torch": torch.__version__,
        "ctranslate2": ctranslate2.__version__,
        "transformers": transformers.__version__,
        "minutes": round((time.perf_counter() - start) / 60),
        "ratios": [asdict(ratio) for ratio in ratios],
    }
    write_results(content, arguments.output)


if __name__ == "__main__":
    main()

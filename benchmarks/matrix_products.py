"""Products of float32 matrices by our kernel compared with torch's, and training steps with both: one thread.

    OMP_NUM_THREADS=1 python benchmarks/matrix_products.py [--turns 15] [--output FILE.json]

The products are those of a linear layer: forward, and of the gradients of its input and of its weight. The steps are
forward and backward passes of the translation model of ``recipes/base/multi30k.yaml`` on 1,800 source and 1,800 target
tokens of a vocabulary of 8,000. Both ways take turns; medians of processor time.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.nn import functional as F

from structattn.models.builders.embeddings import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder
from structattn.operators.linear import product
from structattn.settings.encoder_decoder import EncoderDecoderSettings
from structattn.support.devices import processor_name

RECIPE = Path(__file__).parents[1] / "recipes" / "base" / "multi30k.yaml"
SIZES = ((2000, 192, 768), (2000, 256, 1024), (2000, 512, 2048), (2000, 192, 8000))  # rows, inputs, outputs
VOCABULARY, SENTENCES, LENGTH = 8000, 100, 18


@contextmanager
def products_of_torch() -> Iterator[None]:
    """Compute all products as torch does."""
    least, product.LEAST_PRODUCTS = product.LEAST_PRODUCTS, 2**63
    try:
        yield
    finally:
        product.LEAST_PRODUCTS = least


def measure(calls: dict[str, Callable[[], Any]], turns: int) -> dict[str, float]:
    """Return the median of the processor time of each call, ours and torch's in turns, after a warm-up turn."""
    seconds: dict[str, list[float]] = {name: [] for call in calls for name in (call, f"{call}, torch")}
    for _ in range(turns + 1):
        for name, call in calls.items():
            seconds[name].append(processor_time(call))
            with products_of_torch():
                seconds[f"{name}, torch"].append(processor_time(call))
    return {name: statistics.median(all_turns[1:]) for name, all_turns in seconds.items()}


def processor_time(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def layer(rows: int, inputs: int, outputs: int) -> dict[str, Callable[[], Any]]:
    """Return the three products of a linear layer."""
    x, weight, cotangent = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(rows, outputs)
    return {
        "forward": lambda: product.linear_product(x, weight),
        "gradient of the input": lambda: product.product(cotangent, weight),
        "gradient of the weight": lambda: product.product(cotangent.t(), x),
    }


def step() -> Callable[[], None]:
    """Return a forward and backward pass of the translation model."""
    torch.manual_seed(0)
    settings, vocabulary = yaml.safe_load(RECIPE.read_text())["model"], VocabularySpec(VOCABULARY)
    model = build_encoder_decoder(EncoderDecoderSettings.model_validate(settings), vocabulary, vocabulary).train()
    source, target = torch.randint(4, VOCABULARY, (2, SENTENCES, LENGTH))

    def run() -> None:
        model.zero_grad()
        logits = model(source, target)
        F.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    product.is_faster_than_torch = lambda: True  # also where torch's are used
    rows = []
    for sizes in SIZES:
        seconds, operations = measure(layer(*sizes), arguments.turns), 2 * sizes[0] * sizes[1] * sizes[2]
        rows.append({"sizes": sizes, "gflops": {name: operations / taken / 1e9 for name, taken in seconds.items()}})
        print(sizes, {name: round(rate) for name, rate in rows[-1]["gflops"].items()})
    of_step = measure({"step": step()}, arguments.turns)
    print({name: f"{taken:.3f} s" for name, taken in of_step.items()})
    if arguments.output:
        about = {"turns": arguments.turns, "torch": torch.__version__, "processor": processor_name()}
        arguments.output.write_text(json.dumps(about | {"products": rows, "step": of_step}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

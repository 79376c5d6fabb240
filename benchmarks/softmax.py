"""Softmax attention on a CPU: the compiled kernel, torch's kernel, and the operator, which chooses between them.

    python benchmarks/softmax.py [--repeats 7] [--output FILE.json]

- Training: forward, backward and update of a language model, and of an encoder-decoder on padded batches.
- Decoding: beam search of the encoder-decoder, with keys and values given by row indices. The compiled kernel reads the
  rows in place; for torch they are gathered first.

Runs of the variants are interleaved after a warm-up round. Reports medians of the CPU time in milliseconds, with one
thread. "torch" is ``scaled_dot_product_attention`` with masks for padding, without containment of NaN.
"""

import argparse
import importlib
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from result_file import write_results
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn
from torch.nn import functional as F

from decoding import built, incremental, sentences, translate
from structattn.attention import cache
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_language_model
from structattn.operators.softmax_attention import cpu
from structattn.settings.transformer import LanguageModelSettings

OPERATOR = importlib.import_module("structattn.operators.softmax_attention")
VARIANTS: dict[str, list[tuple[Any, str, Any]]] = {
    "kernel": [(cpu, "_torch_is_faster", lambda *given: False)],
    "torch": [
        (OPERATOR, "chosen_implementation", lambda *given: "gpu"),
        (cache, "can_index_rows", lambda *given: False),
    ],
    "operator": [],
}
VOCABULARY = 1000
# d_model, heads, layers, batch, length
LANGUAGE_MODELS = [
    (32, 4, 5, 10, 40),
    (32, 4, 5, 10, 256),
    (64, 8, 5, 32, 64),
    (256, 8, 4, 16, 128),
    (256, 4, 2, 4, 512),
    (512, 8, 2, 2, 1024),
]


@contextmanager
def attention_variant(variant: str) -> Iterator[None]:
    """Replace the functions that choose the kernel."""
    before = [(module, name, getattr(module, name)) for module, name, _ in VARIANTS[variant]]
    try:
        for module, name, function in VARIANTS[variant]:
            setattr(module, name, function)
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def _update(model: nn.Module, *inputs: torch.Tensor) -> Callable[[], object]:
    optimizer = torch.optim.Adam(model.parameters())

    def update() -> None:
        optimizer.zero_grad()
        logits = model.train()(*inputs).flatten(0, 1)
        F.cross_entropy(logits, torch.arange(len(logits)) % logits.shape[1]).backward()
        optimizer.step()

    return update


def language_model(sizes: tuple[int, ...], dropout: float) -> Callable[[], object]:
    """Return a function that updates a language model."""
    width, heads, layers, batch, length = sizes
    names = "d_model", "d_ff", "num_heads", "layers", "dropout"
    values = width, 4 * width, heads, layers, dropout
    settings = LanguageModelSettings.model_validate({"kind": "transformer", **dict(zip(names, values, strict=True))})
    return _update(
        build_language_model(settings, VocabularySpec(VOCABULARY)), torch.randint(4, VOCABULARY, (batch, length))
    )


def translation_update(length: int) -> Callable[[], object]:
    """Return a function that updates on sentences of half to the full length, with the recipe's dropout."""
    batch = 2048 // length
    tokens = torch.randint(4, VOCABULARY, (2, batch, length))
    lengths = torch.randint(length // 2, length + 1, (2, batch))
    return _update(built("base", VOCABULARY), *tokens, *lengths)


def translation_decoding(count: int) -> Callable[[], object]:
    """Return a function that translates ``count`` sentences by beam search."""
    model, pairs = built("base", VOCABULARY), sentences(count, VOCABULARY)
    return lambda: translate(model, pairs, incremental, 4, 2048)


def cases() -> dict[str, Callable[[], object]]:
    found = {}
    for sizes in LANGUAGE_MODELS:
        width, heads, layers, batch, length = sizes
        for dropout in (0.0, 0.1):
            name = f"language model, d={width}, {heads} heads, {layers} layers, {batch} x {length}, dropout {dropout}"
            found[name] = language_model(sizes, dropout)
    for length in (16, 64):
        found[f"translation update, {length} tokens"] = translation_update(length)
    return found | {"translation, beam 4": translation_decoding(32)}


def milliseconds(call: Callable[[], object]) -> float:
    """Return the CPU time of one call, averaged over at least a tenth of a second."""
    torch.manual_seed(0)
    start, count = time.process_time(), 0
    while count == 0 or time.process_time() - start < 0.1:
        call()
        count += 1
    return (time.process_time() - start) / count * 1000


def measured(repeats: int) -> list[dict[str, Any]]:
    """Return the medians of all variants for each case."""
    rows = []
    for name, call in track(cases().items(), "Measuring"):
        taken: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        for _ in range(repeats + 1):
            for variant, found in taken.items():
                with attention_variant(variant):
                    found.append(milliseconds(call))
        rows.append(
            {"case": name} | {variant: round(statistics.median(found[1:]), 3) for variant, found in taken.items()}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = measured(arguments.repeats)
    table = Table("case", *(f"{variant}, ms" for variant in VARIANTS), "torch / kernel")
    for row in rows:
        table.add_row(
            row["case"], *(f"{row[variant]:.2f}" for variant in VARIANTS), f"{row['torch'] / row['kernel']:.2f}"
        )
    Console().print(table)
    about = {"repeats": arguments.repeats, "torch": torch.__version__, "processor": platform.machine()}
    capability = torch.backends.cpu.get_cpu_capability()
    write_results(about | {"instructions": capability, "results": rows}, arguments.output)


if __name__ == "__main__":
    main()

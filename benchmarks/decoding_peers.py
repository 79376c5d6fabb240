"""Sentences per second of beam search, compared with CTranslate2 on the same weights: one thread, interleaved.

    OMP_NUM_THREADS=1 python benchmarks/decoding_peers.py [--turns 5] [--batches 1] [--output FILE.json]

Random weights at two sizes: those of You et al. (2020), d 288, 5 + 5 layers, 4 heads, feed-forward 507, and d 512,
6 + 6 layers, 8 heads, feed-forward 2,048; vocabulary 10,000. Batches of 64 random sources of 28 tokens are translated
into 28 tokens: the embedding of <eos> is zero, so that it is not predicted. The model is exported to CTranslate2, so
that both engines do the same work; the fraction of equal translations is reported (ties and rounding may differ).

The weights of both engines are laid out before they are measured. All methods take turns, and medians are reported.
Hard-coded attention (hc-sa, sh-x) is measured at the smaller size.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
import torch
import yaml
from rich.console import Console
from rich.progress import track
from rich.table import Table

from structattn.building.embeddings import VocabularySpec
from structattn.building.models import build_encoder_decoder
from structattn.decoding import BeamSearch, beam_search, start_translation
from structattn.export.ctranslate2 import write_ctranslate2
from structattn.models import EncoderDecoder
from structattn.operators.linear import LinearPrecision, linear_precision
from structattn.operators.linear.int8 import int8_refusal
from structattn.settings.encoder_decoder import EncoderDecoderSettings
from structattn.support.files import temporary_folder
from structattn.support.processor import processor_name
from structattn.support.special_tokens import EOS, EOS_CLASS

SYSTEMS = Path(__file__).parents[1] / "tests" / "tasks" / "systems.yaml"
VOCABULARY, SENTENCES, LENGTH = 10_000, 64, 28
SIZES: dict[str, dict[str, Any]] = {
    "d 288": {},
    "d 512": {
        "d_model": 512,
        "d_ff": 2048,
        "num_heads": 8,
        "encoder": {"layers": 6},
        "decoder": {"layers": 6},
    },
}
Run = Callable[[list[list[int]], int], list[list[int]]]


@dataclass(frozen=True)
class Method:
    """An engine with a model of some size."""

    name: str
    size: str
    run: Run
    exported: bool = True  # whether CTranslate2 has the same model


def build(system: str, size: str, changes: dict[str, Any] | None = None) -> EncoderDecoder:
    """Return a model with random weights that never predicts <eos>; ``changes`` are other settings."""
    torch.manual_seed(0)
    settings = yaml.safe_load(SYSTEMS.read_text())[system] | SIZES[size] | (changes or {})
    vocabulary = VocabularySpec(VOCABULARY)
    model = build_encoder_decoder(EncoderDecoderSettings.model_validate(settings), vocabulary, vocabulary)
    with torch.no_grad():
        model.target.class_embeddings()[EOS_CLASS] = 0
    return model.eval()


def symbols() -> list[str]:
    return ["<pad>", "<bos>", "<eos>", "<unk>", *(f"w{index}" for index in range(4, VOCABULARY))]


def ours(model: EncoderDecoder, kept: ExitStack, precision: LinearPrecision = "float32") -> Run:
    """Return beam search of this library, with weights that are laid out once, and kept as long as ``kept`` is open."""
    context, weights = copy_context(), linear_precision(precision)
    context.run(weights.__enter__)
    kept.callback(context.run, weights.__exit__, None, None, None)

    def search(sources: list[list[int]], beam: int) -> list[list[int]]:
        found = []
        for first in range(0, len(sources), SENTENCES):
            start = start_translation(model, torch.tensor(sources[first : first + SENTENCES]))
            found += [list(best.tokens) for (best,) in beam_search(model, start, LENGTH, BeamSearch(beam))]
        return found

    return lambda sources, beam: context.run(search, sources, beam)


def theirs(folder: Path, compute_type: str) -> Run:
    """Return beam search of CTranslate2."""
    translator = ctranslate2.Translator(str(folder), compute_type=compute_type, inter_threads=1, intra_threads=1)
    names = symbols()
    ids = {name: index for index, name in enumerate(names)}

    def run(sources: list[list[int]], beam: int) -> list[list[int]]:
        tokens = [[names[token] for token in source[:-1]] for source in sources]
        found = translator.translate_batch(tokens, beam_size=beam, max_batch_size=SENTENCES, max_decoding_length=LENGTH)
        return [[ids[token] for token in each.hypotheses[0]] for each in found]

    return run


def methods(folder: Path, sizes: list[str], kept: ExitStack) -> list[Method]:
    """Return all methods: CTranslate2 on exported weights, and this library."""
    found = []
    for number, size in enumerate(sizes):
        exported, model = folder / str(number), build("base", size)
        exported.mkdir()
        write_ctranslate2(model, [symbols()] * 2, exported, pre_norm=False)
        found.append(Method("CTranslate2 float32", size, theirs(exported, "float32")))
        found.append(Method("CTranslate2 int8", size, theirs(exported, "int8")))
        found.append(Method("structattn float32", size, ours(model, kept)))
        if int8_refusal() is None:
            found.append(Method("structattn int8", size, ours(model, kept, "int8")))
        if not SIZES[size]:
            found += [
                Method(f"structattn {name}", size, ours(build(name, size), kept), False) for name in ("hc-sa", "sh-x")
            ]
    return found


def measured(found: list[Method], beams: list[int], turns: int, batches: int) -> list[dict[str, Any]]:
    """Return sentences per second of each method and beam: medians and all turns, after a warm-up turn."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, VOCABULARY, (batches * SENTENCES, LENGTH), generator=generator)
    ids[:, -1] = EOS
    cases = [(method, beam) for beam in beams for method in found]
    speeds: list[list[float]] = [[] for _ in cases]
    texts: dict[tuple[str, str, int], list[list[int]]] = {}
    for _ in track(range(turns + 1), "turns"):
        for (method, beam), speed in zip(cases, speeds, strict=True):
            start = time.process_time()
            texts[method.name, method.size, beam] = method.run(ids.tolist(), beam)
            speed.append(len(ids) / (time.process_time() - start))
    rows = []
    for (method, beam), speed in zip(cases, speeds, strict=True):
        reference = texts["CTranslate2 float32", method.size, beam]
        same = sum(a == b for a, b in zip(texts[method.name, method.size, beam], reference, strict=True))
        rows.append(
            {
                "method": method.name,
                "size": method.size,
                "beam": beam,
                "exported": method.exported,
                "sentences_per_second": statistics.median(speed[1:]),
                "all": speed[1:],
                "equal_to_ctranslate2_float32": same / len(ids),
            }
        )
    return rows


def report(rows: list[dict[str, Any]]) -> None:
    table = Table("size", "beam", "method", "sentences/s", "of CTranslate2 float32", "equal translations")
    first = {(row["size"], row["beam"]): row for row in rows if row["method"] == "CTranslate2 float32"}
    for row in sorted(rows, key=lambda row: (row["size"], row["beam"])):
        speed, reference = row["sentences_per_second"], first[row["size"], row["beam"]]["sentences_per_second"]
        cells = (
            f"{speed:.1f}",
            f"{speed / reference:.2f}",
            f"{row['equal_to_ctranslate2_float32']:.0%}" if row["exported"] else "",
        )
        table.add_row(row["size"], str(row["beam"]), row["method"], *cells)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with temporary_folder() as folder, ExitStack() as kept:
        rows = measured(methods(folder, arguments.sizes, kept), arguments.beams, arguments.turns, arguments.batches)
    report(rows)
    if arguments.output:
        about = {key: value for key, value in vars(arguments).items() if key != "output"}
        about |= {"torch": torch.__version__, "ctranslate2": ctranslate2.__version__, "threads": 1}
        about |= {"processor": processor_name()}
        arguments.output.write_text(json.dumps(about | {"results": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

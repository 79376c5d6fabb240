"""Sentences per second of beam search, compared with CTranslate2 on the same weights: one thread, interleaved.

    OMP_NUM_THREADS=1 python benchmarks/decoding_peers.py [--turns 5] [--batches 1] [--memory] [--output FILE.json]

Random weights at two sizes: those of You et al. (2020), d 288, 5 + 5 layers, 4 heads, feed-forward 507, and d 512,
6 + 6 layers, 8 heads, feed-forward 2,048; vocabulary 10,000. Batches of 64 random sources of 28 tokens are translated
into 28 tokens: the embedding of <eos> is zero, so that it is not predicted. The model is exported to CTranslate2, so
that both engines do the same work; the fraction of equal translations is reported (ties and rounding may differ).

The weights of both engines are laid out before they are measured. All methods take turns, and medians are reported.
Hard-coded attention (hc-sa, sh-x) is measured at the smaller size.

``--memory`` (Linux) measures how much the resident memory of a process grows at most while it translates its first
batch, after a batch of one sentence; per sentence, each method in a process of its own.
"""

import argparse
import ctypes
import gc
import statistics
import subprocess
import sys
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
from memory import resident_bytes
from result_file import write_results
from rich.console import Console
from rich.progress import track
from rich.table import Table

from structattn.acceleration import accelerate
from structattn.decoding import BeamSearch, beam_search, start_translation, weights_unchanged
from structattn.interop.export.ctranslate2 import write_ctranslate2
from structattn.models import EncoderDecoder
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder
from structattn.settings.transformer import EncoderDecoderSettings
from structattn.support.devices import processor_name
from structattn.support.files import temporary_folder
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


def ours(model: EncoderDecoder, kept: ExitStack) -> Run:
    """Return beam search of this library, with weights that are laid out once, and kept as long as ``kept`` is open."""
    context, weights, fast = copy_context(), weights_unchanged(), accelerate(model)
    context.run(weights.__enter__)
    kept.callback(context.run, weights.__exit__, None, None, None)

    def search(sources: list[list[int]], beam: int) -> list[list[int]]:
        found = []
        for first in range(0, len(sources), SENTENCES):
            start = start_translation(fast, torch.tensor(sources[first : first + SENTENCES]))
            found += [list(best.tokens) for (best,) in beam_search(fast, start, LENGTH, BeamSearch(beam))]
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
        if not SIZES[size]:
            found += [
                Method(f"structattn {name}", size, ours(build(name, size), kept), False) for name in ("hc-sa", "sh-x")
            ]
    return found


def random_sources(count: int) -> list[list[int]]:
    """Return sources that end in <eos>."""
    ids = torch.randint(4, VOCABULARY, (count, LENGTH), generator=torch.Generator().manual_seed(0))
    ids[:, -1] = EOS
    return ids.tolist()


def memory_of(method: Method, beam: int) -> float:
    """Return by how many MiB the resident memory grows at most while a batch is translated, per sentence."""
    sources = random_sources(SENTENCES)
    method.run(sources[:1], beam)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what laying out the weights has freed
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident_bytes("VmRSS")
    method.run(sources, beam)
    return (resident_bytes() - before) / 2**20 / SENTENCES


def memory_in_own_process(row: dict[str, Any]) -> float:
    """Return ``memory_of`` for the method and beam of a row, measured in another process."""
    case = [row["method"], row["size"], str(row["beam"])]
    done = subprocess.run(
        [sys.executable, __file__, "--memory-of", *case], stdout=subprocess.PIPE, text=True, check=True
    )
    return float(done.stdout)


def measured(found: list[Method], beams: list[int], turns: int, batches: int) -> list[dict[str, Any]]:
    """Return sentences per second of each method and beam: medians and all turns, after a warm-up turn."""
    ids = random_sources(batches * SENTENCES)
    cases = [(method, beam) for beam in beams for method in found]
    speeds: list[list[float]] = [[] for _ in cases]
    texts: dict[tuple[str, str, int], list[list[int]]] = {}
    for _ in track(range(turns + 1), "turns"):
        for (method, beam), speed in zip(cases, speeds, strict=True):
            start = time.process_time()
            texts[method.name, method.size, beam] = method.run(ids, beam)
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
    columns = ("size", "beam", "method", "sentences/s", "of CTranslate2 float32", "equal translations")
    table = Table(*columns, "MiB per sentence")
    first = {(row["size"], row["beam"]): row for row in rows if row["method"] == "CTranslate2 float32"}
    for row in sorted(rows, key=lambda row: (row["size"], row["beam"])):
        speed, reference = row["sentences_per_second"], first[row["size"], row["beam"]]["sentences_per_second"]
        cells = (
            f"{speed:.1f}",
            f"{speed / reference:.2f}",
            f"{row['equal_to_ctranslate2_float32']:.0%}" if row["exported"] else "",
            f"{row['mib_per_sentence']:.2f}" if "mib_per_sentence" in row else "",
        )
        table.add_row(row["size"], str(row["beam"]), row["method"], *cells)
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--memory", action="store_true", help="measure the peak memory, too")
    parser.add_argument("--memory-of", nargs=3, metavar=("METHOD", "SIZE", "BEAM"), help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with temporary_folder() as folder, ExitStack() as kept:
        if arguments.memory_of:
            name, size, beam = arguments.memory_of
            (method,) = (each for each in methods(folder, [size], kept) if each.name == name)
            print(memory_of(method, int(beam)))
            return
        rows = measured(methods(folder, arguments.sizes, kept), arguments.beams, arguments.turns, arguments.batches)
    if arguments.memory:
        rows = [row | {"mib_per_sentence": memory_in_own_process(row)} for row in track(rows, "memory")]
    report(rows)
    about = {key: value for key, value in vars(arguments).items() if key not in ("output", "memory_of")}
    about |= {"torch": torch.__version__, "ctranslate2": ctranslate2.__version__, "threads": 1}
    about |= {"processor": processor_name()}
    write_results(about | {"results": rows}, arguments.output)


if __name__ == "__main__":
    main()

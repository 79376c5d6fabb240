"""Beam search with decoders of other mechanisms, in kernel calls and module by module, relative to base: one thread.

    OMP_NUM_THREADS=1 python benchmarks/decoding_mechanisms.py [--turns 5] [--output FILE.json]

The models are those of ``decoding_peers.py`` at d 288 with other mechanisms in the decoder; sources, lengths and <eos>
are the same. All take turns; the reported ratios are medians of the turns' ratios of processor time.
"""

import argparse
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from decoding_peers import LENGTH, SENTENCES, VOCABULARY, build
from result_file import write_results
from rich.console import Console
from rich.progress import track
from rich.table import Table

from structattn.decoding import BeamSearch, beam_search, start_translation, weights_unchanged
from structattn.fast.decoder import AcceleratedDecoder, accelerate_decoder
from structattn.support.devices import processor_name
from structattn.support.special_tokens import EOS

DECODERS: dict[str, dict[str, Any]] = {
    "base": {},
    "hard attention": {"decoder": {"layers": "5xhard", "cross_attention": "5xhard"}},
    "rotary positions": {"positions": {"kind": "rotary"}},
    "ALiBi": {"positions": {"kind": "alibi"}},
    "relative positions of Transformer-XL": {"positions": {"kind": "relative"}},
    "superposition stack in the middle layer": {"decoder": {"layers": "2.superposition-32.2"}},
    "nondeterministic stack in the middle layer": {"decoder": {"layers": "2.nondeterministic-2-3-5.2"}},
}


def sublayers(fast: AcceleratedDecoder, sources: torch.Tensor) -> tuple[int, int]:
    """Return the number of sublayers in kernel calls, and of all sublayers."""
    runs = start_translation(fast, sources[:1]).state.weights.runs  # type: ignore[attr-defined]  # a ``FastState``
    counts = [(len(run.parts) if run.packed else 0, len(run.parts)) for run in runs]
    return sum(first for first, _ in counts), sum(both for _, both in counts)


@torch.no_grad()
def measured(turns: int, beams: list[int]) -> list[dict[str, Any]]:
    sources = torch.randint(4, VOCABULARY, (SENTENCES, LENGTH), generator=torch.Generator().manual_seed(0))
    sources[:, -1] = EOS
    models = {name: build("base", "d 288", changes) for name, changes in DECODERS.items()}
    fast = {name: cast(AcceleratedDecoder, accelerate_decoder(model)) for name, model in models.items()}
    cases = [(name, way, beam) for beam in beams for name in models for way in ("kernel", "modules")]
    seconds: dict[tuple[str, str, int], list[float]] = {case: [] for case in cases}
    with weights_unchanged():
        for _ in track(range(turns + 1), "turns"):
            for name, way, beam in cases:
                begin = time.process_time()
                model = fast[name] if way == "kernel" else models[name]
                beam_search(model, start_translation(model, sources), LENGTH, BeamSearch(beam))
                seconds[name, way, beam].append(time.process_time() - begin)
        counts = {name: sublayers(model, sources) for name, model in fast.items()}
    times = {case: np.array(values[1:]) for case, values in seconds.items()}
    return [
        {
            "decoder": name,
            "beam": beam,
            "sublayers_in_kernel": counts[name],
            **{
                way: float(np.median(times["base", "kernel", beam] / times[name, way, beam]))
                for way in ("kernel", "modules")
            },
        }
        for beam in beams
        for name in models
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = measured(arguments.turns, arguments.beams)
    table = Table("decoder", "beam", "sublayers in kernel calls", "speed of base", "module by module")
    for row in rows:
        inside, every = row["sublayers_in_kernel"]
        speeds = f"{row['kernel']:.2f}", f"{row['modules']:.2f}"
        table.add_row(row["decoder"], str(row["beam"]), f"{inside} of {every}", *speeds)
    Console().print(table)
    about = {"turns": arguments.turns, "torch": torch.__version__, "processor": processor_name()}
    write_results(about | {"results": rows}, arguments.output)


if __name__ == "__main__":
    main()

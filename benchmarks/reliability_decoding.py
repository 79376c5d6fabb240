"""Does the text that comes out depend on what is decoded beside it? A run's test set in many batch sizes and orders.

    python benchmarks/reliability_decoding.py RUN [--sentences 1000] [--output FILE.json]

The sentences are translated in the order of the file, in batches of 64, 7 and 1, and in another order in batches of 7.
Sums over longer or shorter batches are rounded differently, so two hypotheses of nearly the same score may change
places. A difference is such a tie if the scores of both lie within 1e-5 of each other; any other makes this fail.
"""

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from structattn.evaluation.translation import make_translator
from structattn.inference.runs import open_run
from structattn.inference.translator import Translation, Translator

TIE = 1e-5


def translated(translator: Translator, lines: Sequence[str], size: int, order: Sequence[int]) -> list[Translation]:
    """The best translation of each line, in the order of the file."""
    found: dict[int, Translation] = {}
    for first in track(range(0, len(order), size), f"Batches of {size}", console=Console(stderr=True)):
        numbers = order[first : first + size]
        for number, (best, *_) in zip(numbers, translator([lines[i] for i in numbers]), strict=True):
            found[number] = best
    return [found[number] for number in range(len(lines))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    run = open_run(arguments.run)
    translator, lines = make_translator([run]), run.prepared.texts("test", "source")[: arguments.sentences]
    as_it_stands = list(range(len(lines)))
    shuffled = random.Random(1).sample(as_it_stands, len(lines))
    alone = translated(translator, lines, 1, as_it_stands)
    rows = []
    for name, size, order in (("7", 7, as_it_stands), ("64", 64, as_it_stands), ("7, shuffled", 7, shuffled)):
        other = translated(translator, lines, size, order)
        gaps = [abs(a.score - b.score) for a, b in zip(alone, other, strict=True) if a.text != b.text]
        rows.append({"batches": name, "different": len(gaps), "greatest gap of scores": max(gaps, default=0.0)})
    Console().print(rows)
    if arguments.output:
        about = {"sentences": len(lines), "beam": translator.search.beam_size}
        arguments.output.write_text(
            json.dumps(about | {"against batches of 1": rows}, indent=1) + "\n", encoding="utf-8"
        )
    sys.exit(any(row["greatest gap of scores"] > TIE for row in rows))


if __name__ == "__main__":
    main()

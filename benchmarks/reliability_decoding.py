"""Check that translations do not depend on the other sentences of a batch.

    python benchmarks/reliability_decoding.py RUN [--sentences 1000] [--output FILE.json]

The test set of a run is translated in file order in batches of 64, 7 and 1, and in shuffled order in batches of 7.
Rounding depends on the size of a batch, so two hypotheses with nearly equal scores may swap. A difference counts as
such a tie if the two scores differ by at most 1e-5; any other difference makes this script fail.
"""

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from result_file import write_results
from rich.console import Console
from rich.progress import track

from structattn.loading.runs import open_run
from structattn.tasks.translation.predict import Translation, Translator
from structattn.tasks.translation.translators import make_translator

TIE = 1e-5


def translated(translator: Translator, lines: Sequence[str], size: int, order: Sequence[int]) -> list[Translation]:
    """Return the best translation of each line, in file order."""
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
    in_order = list(range(len(lines)))
    shuffled = random.Random(1).sample(in_order, len(lines))
    alone = translated(translator, lines, 1, in_order)
    rows = []
    for name, size, order in (("7", 7, in_order), ("64", 64, in_order), ("7, shuffled", 7, shuffled)):
        other = translated(translator, lines, size, order)
        gaps = [abs(a.score - b.score) for a, b in zip(alone, other, strict=True) if a.text != b.text]
        rows.append({"batches": name, "different": len(gaps), "largest score difference": max(gaps, default=0.0)})
    Console().print(rows)
    about = {"sentences": len(lines), "beam": translator.search.beam_size}
    write_results(about | {"compared with batches of 1": rows}, arguments.output)
    sys.exit(any(row["largest score difference"] > TIE for row in rows))


if __name__ == "__main__":
    main()

"""Sampling speed of the formal languages (strings/s) and transductions (pairs/s) on one core.

    python benchmarks/sampling.py [--output FILE.json]

Sampling does not limit training if it is faster than a training step consumes its data (`plain_eager.json`: ten strings
of 60). Exact probabilities, which only validation and test sets need, are not included.
"""

import time

import numpy as np
from result_file import heading, parse_output, write_results
from rich.console import Console
from rich.table import Table

from structattn.tasks.formal_languages.registry import FORMAL_LANGUAGES, formal_language
from structattn.tasks.transductions.registry import TRANSDUCTIONS, transduction

STRINGS, PAIRS, LENGTH = 2000, 32, 40


def strings_per_second(name: str) -> float:
    """Measure strings of lengths 40 to 80, including the construction of tables."""
    language, generator = formal_language(name), np.random.default_rng(1)
    lengths = generator.choice(language.valid_lengths(40, 80), STRINGS)
    start = time.perf_counter()
    language.sample_each(lengths, generator)
    return STRINGS / (time.perf_counter() - start)


def pairs_per_second(name: str) -> float:
    """Measure batches of 32 pairs of the longest training length."""
    task, generator = transduction(name), np.random.default_rng(1)
    length = task.valid_lengths(1, LENGTH)[-1]
    task.sample(length, PAIRS, generator)
    start, batches = time.perf_counter(), 20
    for _ in range(batches):
        task.sample(length, PAIRS, generator)
    return batches * PAIRS / (time.perf_counter() - start)


def main() -> None:
    """Measure everything, print the results, and write them to a file if one is given."""
    output = parse_output(__doc__)
    figures: dict[str, dict[str, float]] = {
        "strings/s": {name: strings_per_second(name) for name in FORMAL_LANGUAGES},
        "pairs/s": {name: pairs_per_second(name) for name in TRANSDUCTIONS},
    }
    for title, found in figures.items():
        table = Table("name", title, title=title)
        for name, rate in found.items():
            table.add_row(name, f"{rate:,.0f}")
        Console().print(table)
    write_results(heading("python benchmarks/sampling.py") | figures, output)


if __name__ == "__main__":
    main()

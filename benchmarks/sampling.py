"""Strings and pairs a second that the languages and transductions are drawn at, on one core.

    python benchmarks/sampling.py [--output FILE.json]

Whatever is drawn faster than a training step takes it (`plain_eager.json`: ten strings of 60) is made faster than it is
consumed. Exact probabilities, which only validation and test sets need, are not part of the time.
"""

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from structattn.data.formal_languages.registry import FORMAL_LANGUAGES, formal_language
from structattn.data.transductions.registry import TRANSDUCTIONS, transduction

STRINGS, PAIRS, LENGTH = 2000, 32, 40


def strings_a_second(name: str) -> float:
    """Of lengths 40 to 80, tables included."""
    language, generator = formal_language(name), np.random.default_rng(1)
    lengths = generator.choice(language.valid_lengths(40, 80), STRINGS)
    start = time.perf_counter()
    language.sample_each(lengths, generator)
    return STRINGS / (time.perf_counter() - start)


def pairs_a_second(name: str) -> float:
    """In batches of 32, of the longest training length that there is."""
    task, generator = transduction(name), np.random.default_rng(1)
    length = task.valid_lengths(1, LENGTH)[-1]
    task.sample(length, PAIRS, generator)
    start, batches = time.perf_counter(), 20
    for _ in range(batches):
        task.sample(length, PAIRS, generator)
    return batches * PAIRS / (time.perf_counter() - start)


def main() -> None:
    """Measure all, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="keep the figures in this JSON file")
    output = parser.parse_args().output
    figures: dict[str, dict[str, float]] = {
        "strings a second": {name: strings_a_second(name) for name in FORMAL_LANGUAGES},
        "pairs a second": {name: pairs_a_second(name) for name in TRANSDUCTIONS},
    }
    for title, found in figures.items():
        table = Table("name", title, title=title)
        for name, rate in found.items():
            table.add_row(name, f"{rate:,.0f}")
        Console().print(table)
    if output:
        content: dict[str, Any] = {
            "command": "python benchmarks/sampling.py",
            "date": datetime.now(UTC).date().isoformat(),
            **figures,
        }
        output.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()

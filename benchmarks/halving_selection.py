"""Compare what successive halving selects with what the full grid selects, on a sweep whose trials were all trained.

    python benchmarks/halving_selection.py [RECIPE TRIAL_RESULTS] [--after 2 4 8 ...] [--keep 0.5] [--at-least 1]

Reads the stored results of the trials: a trial with halving is byte-identical to that trial without, so nothing is
trained. Prints JSON; ``--write`` stores it in benchmarks/results/halving_selection.json.
"""

import argparse
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

from result_file import heading, print_and_write

from structattn.settings.sweep import Halving, load_sweep
from structattn.sweeps.results import read_sweep_results

ROOT = Path(__file__).parent.parent
RECIPE = "stack_language_models/shared_pairs"
TRIALS = ROOT / f"results/{RECIPE}.trials.jsonl"
RUNGS = [[1, 2, 4], [2, 4, 8], [3, 6, 12], [4, 8, 16], [6, 12]]


def compare(recipe: Path, trials: Path, halving: Halving) -> list[dict[str, Any]]:
    """Return, for each cell, the best validation score of the full grid and with halving, and the share of the cost."""
    sweep = load_sweep(recipe)
    settings = sweep.model_dump(mode="json", exclude_unset=True, exclude={"claims"})  # theirs are means over all trials
    halved = type(sweep).model_validate(settings | {"halving": halving})
    with tempfile.TemporaryDirectory() as folder:
        full = read_sweep_results(sweep, Path(folder), trials)
        selected = {tuple(row.cell.values()): row for row in read_sweep_results(halved, Path(folder), trials).rows}
    cells = []
    for row in full.rows:
        found = selected[tuple(row.cell.values())]
        assert found.savings is not None, "a sweep with halving"
        ends = [result.outcome.end for result in full.ended if result.trial.cell == row.cell]
        epochs = sum(end["epoch"] for end in ends if end is not None)
        cells.append(
            {
                "cell": row.cell,
                "trials": len(ends),
                "full": row.best,
                "halved": found.best,
                "difference": found.best - row.best,
                "epochs_full": epochs,
                "epochs_halved": found.savings.trained,
                "cost": found.savings.trained / epochs,
            }
        )
    return cells


def main() -> None:
    """Compare, print the result, and store it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", nargs="?", default=RECIPE)
    parser.add_argument("trials", type=Path, nargs="?", default=TRIALS)
    parser.add_argument("--after", type=int, nargs="+", action="append", help="rungs, in epochs; repeatable")
    parser.add_argument("--keep", type=float, default=0.5)
    parser.add_argument("--at-least", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for rungs in arguments.after or RUNGS:
        halving = Halving(after=tuple(rungs), keep=arguments.keep, at_least=arguments.at_least)
        cells = compare(arguments.recipe, arguments.trials, halving)
        rows.append(
            {
                "halving": halving.model_dump(mode="json"),
                "cost": sum(cell["epochs_halved"] for cell in cells) / sum(cell["epochs_full"] for cell in cells),
                "largest_difference": max(cell["difference"] for cell in cells),
                "cells": cells,
            }
        )
    words = [word for word in sys.argv[1:] if word != "--write"]
    result = {
        **heading(shlex.join(["python", "benchmarks/halving_selection.py", *words])),
        "rows": rows,
    }
    results = Path(__file__).with_name("results")
    print_and_write(result, results / "halving_selection.json" if arguments.write else None)


if __name__ == "__main__":
    main()

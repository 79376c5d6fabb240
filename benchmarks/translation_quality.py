"""What int8, bfloat16 and a vocabulary shortlist change: BLEU and speed of trained runs on their test sets.

    OMP_NUM_THREADS=1 python benchmarks/translation_quality.py RUN ... [--turns 3] [--output FILE.json]

Each run translates its test set in float32, without and with a shortlist, in bfloat16 and in int8, in turns, with the
settings of the run, on one thread. The differences of BLEU from float32 have the p-values that ``structattn compare``
computes, by paired bootstrap.

The last columns say what batches that are refilled as sentences end could save at most: in float32, the number of rows
of each step (the hypotheses of the sentences that are still open) and its time are recorded, a straight line is fitted,
and the time of as many rows in steps that are as large as the largest one is subtracted.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from structattn.decoding.beam import search
from structattn.loading.load import open_run
from structattn.loading.trained_run import TrainedRun
from structattn.metrics.translation import compare_systems
from structattn.operators.linear import precision_refusal
from structattn.support.devices import processor_name
from structattn.tasks.translation.predict import Translator
from structattn.tasks.translation.translators import make_translator


def translators(run: TrainedRun) -> dict[str, Translator]:
    """Return the translators to compare, the reference first."""
    found = {"float32": make_translator([run]), "shortlist": make_translator([run], shortlist=True)}
    for precision in ("bf16", "int8"):
        if precision_refusal(precision) is None:
            found[precision] = make_translator([run], precision=precision)
    return found


def refilling_bound(translator: Translator, lines: list[str]) -> dict[str, float]:
    """Return the number of steps, their mean and largest rows, and the fraction of time that full steps would save."""
    rows, seconds, step = list[int](), list[float](), search._step

    def timed(current: search.OpenSearch, how: Any) -> Any:
        begin = time.process_time()
        after = step(current, how)
        seconds.append(time.process_time() - begin)
        rows.append(current.beam.log_probs.numel())
        return after

    search._step = timed
    begin = time.process_time()
    try:
        translator(lines)
    finally:
        search._step = step
    total = time.process_time() - begin
    per_row, fixed = np.polyfit(rows, seconds, 1)
    full_steps = sum(rows) / max(rows)
    saved = sum(seconds) - full_steps * fixed - sum(rows) * per_row
    return {"steps": len(rows), "mean_rows": statistics.mean(rows), "most_rows": max(rows), "saved": saved / total}


def measured(run: TrainedRun, turns: int) -> list[dict[str, Any]]:
    lines, references = list(run.prepared.texts("test", "source")), list(run.prepared.texts("test", "target"))
    methods = translators(run)
    texts: dict[str, list[str]] = {}
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    for _ in track(range(turns + 1), f"{run.run_dir.name}, turns"):
        for name, translator in methods.items():
            begin = time.process_time()
            texts[name] = [best.text for (best,) in translator(lines)]
            seconds[name].append(time.process_time() - begin)
    bound = refilling_bound(methods["float32"], lines)
    rows = []
    for name in methods:
        bleu = compare_systems(texts["float32"], texts[name], references)["BLEU"]
        ratios = [first / other for first, other in zip(seconds["float32"][1:], seconds[name][1:], strict=True)]
        rows.append(
            {
                "run": run.run_dir.name,
                "epochs": run.settings.training.max_epochs,
                "sentences": len(lines),
                "method": name,
                "speed": statistics.median(ratios),
                "sentences_per_second": len(lines) / statistics.median(seconds[name][1:]),
                "equal": statistics.mean(a == b for a, b in zip(texts["float32"], texts[name], strict=True)),
                "BLEU": bleu.second,
                "difference": bleu.second - bleu.first,
                "p": bleu.p,
                "refilling": bound if name == "float32" else None,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for run in arguments.runs for row in measured(open_run(run), arguments.turns)]
    table = Table("run", "method", "BLEU", "difference", "p", "speed of float32", "equal translations")
    for row in rows:
        scores = f"{row['BLEU']:.2f}", f"{row['difference']:+.2f}", f"{row['p']:.3f}"
        table.add_row(row["run"], row["method"], *scores, f"{row['speed']:.2f}", f"{row['equal']:.0%}")
    console = Console()
    console.print(table)
    for row in rows:
        if (bound := row["refilling"]) is not None:
            rows_of_steps = f"{bound['steps']} steps of {bound['mean_rows']:.0f} rows, {bound['most_rows']} at most"
            console.print(
                f"{row['run']}: {rows_of_steps}; refilled batches could save {bound['saved']:.1%} of the time"
            )
    if arguments.output:
        about = {"turns": arguments.turns, "torch": torch.__version__, "processor": processor_name()}
        arguments.output.write_text(json.dumps(about | {"results": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Time and memory of the operators and of training steps: medians of interleaved repeats in one run.

    python benchmarks/operators.py [--output FILE.json]

Peaks of memory are those of separate processes.
"""

import copy
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cases
import torch
from every_operator import every_operator
from result_file import heading, parse_output, write_results
from rich.console import Console
from rich.table import Table
from training_steps import MODELS, POINTER_MODELS, pointer_step, step_of_model

import structattn
from structattn.operators.common.kernels import compiled_kernels
from structattn.support.devices import processor_name

HERE = Path(__file__).parent
console = Console()


def median_seconds(works: dict[str, cases.Work], repeats: int) -> dict[str, float]:
    """Return the median time of each function; runs are interleaved, so that slow phases of the machine affect all."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(repeats):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def in_separate_process(case: str) -> dict[str, float]:
    """Return the time and peak resident memory of one run of a case in a separate process."""
    command = [sys.executable, str(HERE / "cases.py"), case]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(output)
    return result


def small_stacks() -> dict[str, Any]:
    """Measure the nondeterministic stack at the sizes measured for the published code, and the superposition stack."""
    works = {f"nondeterministic-{n}": cases.nondeterministic(n) for n in (60, 100)}
    works["nondeterministic-3-3-80"] = cases.nondeterministic(80, 3, 3)
    works["superposition-100"] = cases.superposition()
    works["superposition-100-reference"] = cases.superposition(implementation="reference")
    seconds = median_seconds(works, 15)
    ratio = seconds["superposition-100-reference"] / seconds["superposition-100"]
    return {"seconds": seconds, "superposition_times_faster_than_reference": ratio}


def nondeterministic_stack_reference() -> dict[str, Any]:
    """Compare time and memory with the reference at n = 100, in separate processes; the reference runs once."""
    fast = [in_separate_process("nondeterministic-100") for _ in range(5)]
    reference = in_separate_process("nondeterministic-100-reference")
    seconds = statistics.median(run["seconds"] for run in fast)
    peak = statistics.median(run["peak_resident_bytes"] for run in fast)
    return {
        "seconds_first_call": seconds,
        "reference_seconds": reference["seconds"],
        "peak_resident_bytes": peak,
        "reference_peak_resident_bytes": reference["peak_resident_bytes"],
        "fraction_of_reference_memory": peak / reference["peak_resident_bytes"],
    }


def long_stacks() -> dict[str, Any]:
    """Compare the nondeterministic stack at n = 128, 256, 512 with a matrix product."""
    works = {f"nondeterministic-{n}": cases.nondeterministic(n) for n in (128, 256, 512)}
    works["matrix-product"] = cases.matrix_product()
    seconds = median_seconds(works, 7)
    product_rate = 2 * 1500**3 / seconds["matrix-product"]
    rates = {n: cases.operations(n, 2, 3) / seconds[f"nondeterministic-{n}"] for n in (128, 256, 512)}
    return {
        "seconds": seconds,
        "matrix_product_gflops": product_rate / 1e9,
        "gflops": {n: rate / 1e9 for n, rate in rates.items()},
        "fraction_of_matrix_product_rate": {n: rate / product_rate for n, rate in rates.items()},
        "growth_128_to_512": seconds["nondeterministic-512"] / seconds["nondeterministic-128"],
    }


def several_stacks() -> dict[str, Any]:
    """Compare layers of 1, 2, 4 and 8 stacks of the same total size, and as many layers of one stack."""
    numbers = (1, 2, 4, 8)
    works = {f"superposition, {n}": cases.several_stacks(n) for n in numbers}
    works |= {f"superposition, {n} layers": cases.separate_stacks(n) for n in numbers}
    works |= {f"stack pointer, {n}": cases.several_stacks(n, pointers=True) for n in numbers}
    seconds = median_seconds(works, 41)
    return {
        "seconds": seconds,
        "times_one_stack": {name: s / seconds[f"{name.split(',')[0]}, 1"] for name, s in seconds.items()},
    }


def training_steps() -> dict[str, Any]:
    """Measure whole training steps, and compare each model with the plain transformer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        at_60 = median_seconds({model: step_of_model(model, 60, folder) for model in MODELS}, 41)
        at_80 = median_seconds({model: step_of_model(model, 80, folder) for model in MODELS}, 41)
        reversing = median_seconds({model: pointer_step(model, 40, folder) for model in POINTER_MODELS}, 41)
    return {
        "seconds_reversing_40": reversing,
        "times_without_stacks_reversing_40": reversing["MLM+stacks"] / reversing["MLM"],
        "times_lstm_length_60": {model: at_60[model] / at_60["LSTM"] for model in at_60 if model.startswith("LSTM")},
        "seconds_length_60": at_60,
        "seconds_length_80": at_80,
        "times_plain_length_60": {model: s / at_60["Tf"] for model, s in at_60.items()},
        "times_plain_length_80": {model: s / at_80["Tf"] for model, s in at_80.items()},
    }


def machine() -> dict[str, Any]:
    """Describe the machine."""
    found = compiled_kernels()
    return {
        "processor": processor_name(),
        "threads": torch.get_num_threads(),
        "instruction_set": found[0] if found else "none",
        "structattn": structattn.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "gpu": torch.cuda.is_available(),
    }


def show(name: str, figures: dict[str, Any]) -> None:
    """Print nested figures as one table."""
    table = Table("figure", "value", title=name)
    rows: list[tuple[str, Any]] = [("", figures)]
    while rows:
        path, value = rows.pop(0)
        if isinstance(value, list):
            value = {f"{row.pop('operator')}, {row.pop('length')}:": row for row in copy.deepcopy(value)}
        if isinstance(value, dict):
            rows = [(f"{path} {key}".strip(), item) for key, item in value.items()] + rows
        else:
            table.add_row(path, f"{value:.4g}")
    console.print(table)


def main() -> None:
    """Measure everything, print the results, and write them to a file if one is given."""
    output = parse_output(__doc__)
    results = heading("python benchmarks/operators.py") | {"machine": machine()}
    parts = (
        small_stacks,
        long_stacks,
        several_stacks,
        every_operator,
        training_steps,
        nondeterministic_stack_reference,
    )
    for part in parts:
        results[part.__name__] = part()
        show(part.__name__.replace("_", " "), results[part.__name__])
    first = results["small_stacks"]["seconds"]["nondeterministic-100"]
    times = results["nondeterministic_stack_reference"]["reference_seconds"] / first
    results["nondeterministic_times_faster_than_reference"] = times
    console.print(f"nondeterministic stack at n = 100: {times:.0f} times faster than its reference")
    write_results(results, output)


if __name__ == "__main__":
    main()

"""Time and memory of every operator, compared with its reference and torch's fused softmax attention, in one run."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from memory import resident_bytes
from operator_cases import CASES, Case, fused_softmax
from torch import Tensor

MAX_SECONDS, MAX_REPEATS = 1.0, 15
GROWTH = (1024, 8192)
Work = Callable[[], object]


def forward(call: Callable[[list[Tensor]], Tensor], leaves: list[Tensor]) -> Work:
    """Return a function that runs the forward pass."""

    def work() -> object:
        with torch.no_grad():
            return call(leaves)

    return work


def forward_and_backward(call: Callable[[list[Tensor]], Tensor], leaves: list[Tensor]) -> Work:
    """Return a function that runs forward and backward with a fixed cotangent."""
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    cotangents: list[Tensor] = []

    def work() -> object:
        result = call(leaves)
        if not cotangents:
            cotangents.append(torch.randn_like(result))
        return torch.autograd.grad(result, leaves, cotangents[0], allow_unused=True)

    return work


def medians(works: dict[str, Work], once: bool = False, repeats: int = MAX_REPEATS) -> dict[str, float]:
    """Return the median time of each function; runs are interleaved, so that slow phases of the machine affect all."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    start = time.perf_counter()
    for repeat in range(1 if once else repeats + 1):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            if repeat or once:  # the first round is warm-up
                seconds[name].append(time.perf_counter() - began)
        if repeat >= 3 and time.perf_counter() - start > MAX_SECONDS * len(works):
            break
    return {name: statistics.median(values) for name, values in seconds.items()}


def measure(case: Case, length: int) -> dict[str, float]:
    """Return the seconds of the operator, of its reference where that is feasible, and of fused softmax attention."""
    torch.manual_seed(0)
    leaves = case.leaves(length)
    baseline, fused = fused_softmax(case.softmax_shape, length)

    def ours(given: list[Tensor]) -> Tensor:
        return case.call(given, "auto")

    def reference(given: list[Tensor]) -> Tensor:
        return case.call(given, "reference")

    works = {"forward": forward(ours, leaves), "forward and backward": forward_and_backward(ours, leaves)}
    works |= {
        "fused softmax forward": forward(fused, baseline),
        "fused softmax forward and backward": forward_and_backward(fused, baseline),
    }
    cheap = length in case.reference_lengths and not case.name.startswith("nondeterministic")
    if cheap:
        works |= {
            "reference forward": forward(reference, leaves),
            "reference forward and backward": forward_and_backward(reference, leaves),
        }
    seconds = medians(works)
    if length in case.reference_lengths and not cheap:
        seconds |= medians({"reference forward and backward": forward_and_backward(reference, leaves)}, once=True)
    return seconds


def peaks(case: Case) -> dict[str, float]:
    """Bytes by which forward and backward raise the peak of a process of their own: ours, and the reference."""
    length = max(case.reference_lengths, default=0)
    found = {}
    for choice in ("auto", "reference") if length else ():
        command = [sys.executable, str(Path(__file__)), case.name, str(length), choice]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[choice] = json.loads(output)["bytes"]
    return {"length": length, **found} if found else {}


def rows_of(case: Case, product_rate: float) -> list[dict[str, Any]]:
    """Return a row for each length: seconds, ratios, operations and the fraction of the matrix-product rate."""
    rows = []
    for length in case.lengths:
        seconds = measure(case, length)
        row: dict[str, Any] = {"operator": case.name, "length": length, "seconds": seconds}
        row["forward operations"] = case.operations(length)
        row["fraction of matrix-product rate"] = case.operations(length) / seconds["forward"] / product_rate
        for kind in ("forward", "forward and backward"):
            if f"reference {kind}" in seconds:
                row[f"times faster than reference, {kind}"] = seconds[f"reference {kind}"] / seconds[kind]
            row[f"times faster than fused softmax, {kind}"] = seconds[f"fused softmax {kind}"] / seconds[kind]
        rows.append(row)
    return rows


def growth() -> dict[str, float]:
    """Return the time of Gaussian attention at n = 8,192 divided by that at 1,024: one sequence, forward and backward.

    A copy of the values is measured too: beyond the size of the caches, even a copy is not linear.
    """
    short, long = GROWTH
    works: dict[str, Work] = {}
    for length in GROWTH:
        for case in (case for case in CASES if case.name.startswith("gaussian")):
            leaves = [leaf[:1] for leaf in case.leaves(length)]
            works[f"{case.name} {length}"] = forward_and_backward(
                lambda given, case=case: case.call(given, "auto"), leaves
            )
        works[f"copy {length}"] = leaves[0].clone
    seconds = medians(works, repeats=101)
    names = [name.removesuffix(f" {short}") for name in seconds if name.endswith(f" {short}")]
    return {name: seconds[f"{name} {long}"] / seconds[f"{name} {short}"] for name in names}


def every_operator() -> dict[str, Any]:
    """Measure all cases in float32, and the float32 matrix product that they are compared with."""
    torch.manual_seed(0)
    matrix = torch.randn(1500, 1500)
    product_rate = 2 * 1500**3 / medians({"product": lambda: matrix @ matrix})["product"]
    rows = [row for case in CASES for row in rows_of(case, product_rate)]
    memory = {case.name: peaks(case) for case in CASES if case.reference_lengths}
    return {
        "matrix product, float32, operations per second": product_rate,
        "rows": rows,
        "memory": memory,
        "growth from 1,024 to 8,192, batch 1, forward and backward": growth(),
    }


def main() -> None:
    """Run the named case once in this process and print the increase of its peak memory."""
    name, length, choice = sys.argv[1:]
    case = next(case for case in CASES if case.name == name)
    torch.manual_seed(0)
    warm, leaves = case.leaves(8), case.leaves(int(length))
    forward_and_backward(lambda given: case.call(given, choice), warm)()
    before = resident_bytes()
    forward_and_backward(lambda given: case.call(given, choice), leaves)()
    print(json.dumps({"bytes": resident_bytes() - before}))


if __name__ == "__main__":
    main()

"""Time and memory of every operator beside its reference and beside torch's fused softmax attention, in one run."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cases import peak_resident_bytes
from operator_cases import CASES, Case, fused_softmax
from torch import Tensor

MOST_SECONDS, MOST_REPEATS = 1.0, 15
GROWTH = (1024, 8192)
Work = Callable[[], object]


def forward(call: Callable[[list[Tensor]], Tensor], leaves: list[Tensor]) -> Work:
    """A forward pass alone."""

    def work() -> object:
        with torch.no_grad():
            return call(leaves)

    return work


def both(call: Callable[[list[Tensor]], Tensor], leaves: list[Tensor]) -> Work:
    """Forward and backward under a fixed cotangent."""
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    cotangents: list[Tensor] = []

    def work() -> object:
        result = call(leaves)
        if not cotangents:
            cotangents.append(torch.randn_like(result))
        return torch.autograd.grad(result, leaves, cotangents[0], allow_unused=True)

    return work


def medians(works: dict[str, Work], once: bool = False, repeats: int = MOST_REPEATS) -> dict[str, float]:
    """The median of each; all take turns, so that a slow moment of the machine falls on all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    start = time.perf_counter()
    for repeat in range(1 if once else repeats + 1):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            if repeat or once:  # the first turn warms up
                seconds[name].append(time.perf_counter() - began)
        if repeat >= 3 and time.perf_counter() - start > MOST_SECONDS * len(works):
            break
    return {name: statistics.median(values) for name, values in seconds.items()}


def measure(case: Case, length: int) -> dict[str, float]:
    """Seconds of a case at a length: ours, its reference where it is affordable, and the fused softmax attention."""
    torch.manual_seed(0)
    leaves = case.leaves(length)
    beside, fused = fused_softmax(case.beside, length)

    def ours(given: list[Tensor]) -> Tensor:
        return case.call(given, "auto")

    def reference(given: list[Tensor]) -> Tensor:
        return case.call(given, "reference")

    works = {"forward": forward(ours, leaves), "both": both(ours, leaves)}
    works |= {"fused softmax forward": forward(fused, beside), "fused softmax both": both(fused, beside)}
    cheap = length in case.reference_lengths and not case.name.startswith("nondeterministic")
    if cheap:
        works |= {"reference forward": forward(reference, leaves), "reference both": both(reference, leaves)}
    seconds = medians(works)
    if length in case.reference_lengths and not cheap:
        seconds |= medians({"reference both": both(reference, leaves)}, once=True)
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
    """One row for each length: seconds, ratios, operations and the part of the machine's matrix-product rate."""
    rows = []
    for length in case.lengths:
        seconds = measure(case, length)
        row: dict[str, Any] = {"operator": case.name, "length": length, "seconds": seconds}
        row["operations forward"] = case.operations(length)
        row["part of matrix-product rate"] = case.operations(length) / seconds["forward"] / product_rate
        for kind in ("forward", "both"):
            if f"reference {kind}" in seconds:
                row[f"times faster than reference, {kind}"] = seconds[f"reference {kind}"] / seconds[kind]
            row[f"times faster than fused softmax, {kind}"] = seconds[f"fused softmax {kind}"] / seconds[kind]
        rows.append(row)
    return rows


def growth() -> dict[str, float]:
    """How many times longer Gaussian attention takes at n = 8,192 than at 1,024, one sequence, forward and backward.

    A copy of the values stands beside it: past the caches' size, and the allocator's, even a copy is not linear.
    """
    short, long = GROWTH
    works: dict[str, Work] = {}
    for length in GROWTH:
        for case in (case for case in CASES if case.name.startswith("gaussian")):
            leaves = [leaf[:1] for leaf in case.leaves(length)]
            works[f"{case.name} {length}"] = both(lambda given, case=case: case.call(given, "auto"), leaves)
        works[f"copy {length}"] = leaves[0].clone
    seconds = medians(works, repeats=101)
    names = [name.removesuffix(f" {short}") for name in seconds if name.endswith(f" {short}")]
    return {name: seconds[f"{name} {long}"] / seconds[f"{name} {short}"] for name in names}


def every_operator() -> dict[str, Any]:
    """All cases; float32 throughout, as is the matrix product whose rate they are compared with."""
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
    """Run the named case once in this process and print by how much its peak of memory rose."""
    name, length, choice = sys.argv[1:]
    case = next(case for case in CASES if case.name == name)
    torch.manual_seed(0)
    warm, leaves = case.leaves(8), case.leaves(int(length))
    both(lambda given: case.call(given, choice), warm)()
    before = peak_resident_bytes()
    both(lambda given: case.call(given, choice), leaves)()
    print(json.dumps({"bytes": peak_resident_bytes() - before}))


if __name__ == "__main__":
    main()

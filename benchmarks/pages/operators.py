"""Operators: time, memory, and the contents of stacks."""

from typing import Any

from pages.tables import milliseconds, results_of, table


def operators(results: dict[str, Any]) -> str:
    """Return a table of the time, memory and speed of the stack operators."""
    small, long = results["small_stacks"], results["long_stacks"]
    reference = results["nondeterministic_stack_reference"]
    rows = [
        (f"nondeterministic, Q 2, S 3, m 5, n {n}", milliseconds(small["seconds"][f"nondeterministic-{n}"]))
        for n in (60, 100)
    ]
    rows += [("nondeterministic, Q 3, S 3, m 5, n 80", milliseconds(small["seconds"]["nondeterministic-3-3-80"]))]
    rows += [
        (
            f"nondeterministic, Q 2, S 3, m 5, n {n}",
            f"{milliseconds(long['seconds'][f'nondeterministic-{n}'])}, "
            f"{100 * long['fraction_of_matrix_product_rate'][str(n)]:.0f} % of the speed of a matrix product",
        )
        for n in (128, 256, 512)
    ]
    rows += [
        ("nondeterministic, reference, n 100", milliseconds(reference["reference_seconds"])),
        (
            "nondeterministic, speedup over the reference, n 100",
            f"{results['nondeterministic_times_faster_than_reference']:.0f}",
        ),
        (
            "nondeterministic, fraction of the reference's peak memory (including torch), n 100",
            f"{reference['fraction_of_reference_memory']:.3f}",
        ),
        ("nondeterministic, time at n 512 / time at n 128", f"{long['growth_128_to_512']:.0f}"),
        ("superposition, m 32, n 100", milliseconds(small["seconds"]["superposition-100"])),
        ("superposition, reference, n 100", milliseconds(small["seconds"]["superposition-100-reference"])),
        (
            "superposition, speedup over the reference, n 100",
            f"{small['superposition_times_faster_than_reference']:.0f}",
        ),
    ]
    return table(("forward and backward, batch 10, float32", "median"), rows)


def every_operator(results: dict[str, Any]) -> str:
    """Return a table of all operators at all lengths."""
    body = []
    for row in results["every_operator"]["rows"]:
        seconds = row["seconds"]
        times = row.get("times faster than reference, forward and backward")
        body.append(
            (
                row["operator"],
                str(row["length"]),
                milliseconds(seconds["forward"]),
                milliseconds(seconds["forward and backward"]),
                f"{times:,.0f}" if times else "",
                f"{row['times faster than fused softmax, forward']:.2g}",
                f"{row['times faster than fused softmax, forward and backward']:.2g}",
                f"{row['forward operations']:.2g}",
                f"{100 * row['fraction of matrix-product rate']:.1f} %",
            )
        )
    head = ("operator", "n", "forward", "forward and backward", "speedup over reference")
    head += (
        "speedup over fused softmax, forward",
        "forward and backward",
        "forward operations",
        "of matrix-product rate",
    )
    return table(head, body)


def memory(results: dict[str, Any]) -> str:
    """Return a table of the increase of peak memory by forward and backward."""
    body = [
        (name, str(peak["length"]), f"{peak['auto'] / 2**20:.1f} MiB", f"{peak['reference'] / 2**20:.1f} MiB")
        for name, peak in results["every_operator"]["memory"].items()
        if peak
    ]
    return table(("operator", "n", "operator, peak increase", "reference, peak increase"), body)


def growth(results: dict[str, Any]) -> str:
    """Return a table of how time grows with length, for operators of linear cost and a copy of their values."""
    found = next(value for key, value in results["every_operator"].items() if key.startswith("growth"))
    return table(
        ("operation", "time at 8,192 / time at 1,024"), [(name, f"{times:.1f}") for name, times in found.items()]
    )


def contents_of_stacks(found: dict[str, Any]) -> str:
    """Describe the time of the contents at each depth."""
    sizes, long, compared = found["sizes"], found["long"], found["compared"]
    stack = f"Q {sizes['states']}, S {sizes['symbols']}"
    return f"""`{found["command"]}`: the exact contents at {sizes["depths"]} depths of a stack with {stack},
after each of {long["tokens"]:,} tokens, take {long["seconds"]:.1f} s of processor time on one thread; the peak memory
of the process is {long["peak_memory_mib"]:,} MiB. At {compared["tokens"]} tokens, the definition takes
{compared["times_faster"]:.0f} times as long (median of rounds in turns).
"""


def section() -> str:
    """Return the sections on operators."""
    cpu = results_of("two-core-cpu")
    machine = cpu["machine"]
    return f"""## Operators

`python benchmarks/operators.py`, all in one run. Medians, except for the nondeterministic stack's reference, which ran
once. {machine["processor"]}, {machine["threads"]} threads, {machine["instruction_set"]}, torch {machine["torch"]}.

{operators(cpu)}
The operation count is n³/6 · (Q³S + Q²S) multiply-adds forward and twice that backward. Speeds are compared with a
float64 product of two 1500 x 1500 matrices, {cpu["long_stacks"]["matrix_product_gflops"]:.0f} GFLOP/s.

### All operators

All inputs are float32. Batch sizes and dimensions:

- Stacks: batch 10, compared with causal softmax attention of shape 10 × 4 × 8 (batch × heads × head size).
  Nondeterministic: Q 2, S 3, m 5; superposition and stratified: m 32.
- Stack pointers: batch 32, vectors of size 256, compared with softmax attention of shape 32 × 8 × 32.
- Others: 2 × 4 × 64, compared with softmax attention of the same shape; receptive fields: one sequence.

References are measured at lengths where they are not too slow. Operations are those of the forward pass, with a
multiply-add counted as two; the last column is their rate relative to that of a float32 matrix product.

{every_operator(cpu)}
Increase of peak resident memory by forward and backward, each measured in a separate process:

{memory(cpu)}
Growth of the time of forward and backward with the length, one sequence with 4 heads of size 64:

{growth(cpu)}
## Contents of a nondeterministic stack

{contents_of_stacks(results_of("stack_contents"))}"""

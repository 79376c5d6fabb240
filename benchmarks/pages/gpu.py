"""A GPU: operators, training steps and decoding, beside the kernels of one program a sequence that came before."""

from typing import Any

from pages.tables import results_of, table

Rows = list[dict[str, Any]]


def cell(found: dict[str, Any] | None) -> str:
    """Return milliseconds, or why there are none."""
    if found is None:
        return ""
    if "failed" in found:
        return str(found["failed"])
    return f"{found['ms']:.3g} ms" if found["ms"] < 999.5 else f"{found['ms'] / 1e3:.3g} s"


def at(rows: Rows, **keys: object) -> dict[str, Any] | None:
    """Return the row with these values."""
    return next((row for row in rows if all(row[key] == value for key, value in keys.items())), None)


def operators(found: dict[str, Any], before: dict[str, Any]) -> str:
    """Return a table of the operators beside torch's attention in bfloat16, and as they were, at every size."""
    body = []
    for row in found["operators"]:
        sizes = {"batch": row["batch"], "length": row["length"]}
        both, flash = row["forward and backward"], at(found["peers"], operator="softmax attention, bfloat16", **sizes)
        fast = flash and "ms" in both and "ms" in flash["forward and backward"]
        times = f"{both['ms'] / flash['forward and backward']['ms']:,.0f}" if flash and fast else ""
        memory = f"{both['GiB']:.2f}" if "GiB" in both else ""
        earlier = at(before["operators"], operator=row["operator"], **sizes)
        numbers = cell(row["forward"]), cell(both), memory, times, cell(earlier and earlier["forward and backward"])
        body.append((row["operator"], str(row["batch"]), str(row["length"]), *numbers))
    header = "operator", "batch", "n", "forward", "forward and backward", "GiB", "times FlashAttention", "before"
    return table(header, body)


def other_operators(found: dict[str, Any]) -> str:
    """Return a table of the operators without tiles or chunks, and of what they replace; nothing if not measured."""
    body = []
    for row in found.get("other operators", ()):
        before = row.get("before", {})
        times = [cell(rows.get(way)) for rows in (row, before) for way in ("forward", "forward and backward")]
        body.append((row["operator"], str(row["batch"]), str(row["length"]), *times))
    if not body:
        return ""
    header = "operator", "batch", "n", "forward", "forward and backward", "forward, before", "both, before"
    return f"""
Other operators, 8 heads of size 64. Before: the definitions of Gaussian attention (weights of all pairs) and
of the stratified stack (a loop over steps), and an ALiBi bias that is copied for each sequence because lengths differ.

{table(header, body)}"""


def training(found: dict[str, Any], before: dict[str, Any]) -> str:
    """Return a table of training steps, called and captured, beside those of the plain transformer."""
    body = []
    for row in sorted(found["training"], key=lambda row: (row["d_model"], row["length"])):
        keys = {key: row[key] for key in ("d_model", "length")}
        cells = []
        for part in ("training", "training, captured"):
            own, plain = (at(found[part], model=model, **keys) for model in (row["model"], "Tf"))
            cells.append(cell(own))
            known = own and plain and "ms" in own and "ms" in plain
            cells.append(f"{plain['ms'] / own['ms']:.2f}" if own and plain and known else "")
        cells.append(cell(at(before["training"], model=row["model"], **keys)))
        body.append((row["model"], str(row["d_model"]), str(row["length"]), *cells))
    return table(("model", "d", "n", "called", "speed of Tf", "captured", "speed of Tf", "called, before"), body)


def decoding(found: dict[str, Any]) -> str:
    """Return a table of the time of a token."""
    rows = [(row["model"], str(row["batch"]), cell(row)) for row in found["decoding"]]
    return table(("model", "batch", "a token"), rows)


def errors(found: dict[str, Any]) -> str:
    """Return a table of errors in float32."""
    rows = [(row["operator"], f"{row['values']:.0e}", f"{row['gradients']:.0e}") for row in found["errors"]]
    return table(("operator", "values", "gradients"), rows)


def section() -> str:
    """Return the section on a GPU."""
    found, before = results_of("gpu"), results_of("gpu_before")
    notes, others = " ".join(found.get("notes", ())), other_operators(found)
    return f"""## On a GPU

`{found["command"]}`, {found["device"]}, torch {found["torch"]}, Triton {found["triton"]}, {found["date"]}; float32
unless said. Medians by the GPU's events. FlashAttention is torch's causal attention in bfloat16, 4 heads of size 64,
forward and backward. Stacks: superposition with m 64; pointers over hidden states of size 256; nondeterministic as
Q-S-m, logits drawn from a standard normal distribution. Before: kernels of one program a sequence, without matrix
units, in double precision, a day earlier. {notes}

{operators(found, before)}{others}
A training step: language models of 5 layers and 23,833 classes, batches of 32 sentences, bfloat16 autocast, Adam. The
stack is in the middle layer; Tf+Sup's has m = d - 1. Called, kernels wait for the host, whose times differ by a factor
of up to two between machines. Captured: the whole step replayed as a CUDA graph; the kernels before could not be
captured.

{training(found, before)}
Decoding step by step, d 256, the mean of 64 tokens:

{decoding(found)}
Errors in float32 beside the definition in float64, ‖x - r‖ / ‖r‖, batch 8, n 128; of gradients, the largest:

{errors(found)}"""

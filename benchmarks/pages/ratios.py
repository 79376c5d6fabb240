"""docs/benchmarks.md: all ratios that ``make bench`` prints."""

import re
from io import StringIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context, rcdefaults
from matplotlib.figure import Figure

from pages.tables import results_of, table

FIGURE = "images/benchmarks.svg"


def rows(found: dict[str, Any]) -> str:
    """Return a table of all ratios."""
    body = []
    for ratio in found["ratios"]:
        low, high = ratio["quartiles"]
        target = "" if ratio["target"] is None else f"{ratio['target']:.2f}"
        if ratio["target"] is not None and ratio["median"] < ratio["target"]:
            target += ", **missed**"
        compared = f"{ratio['what']} / {ratio['relative_to']}"
        body.append((ratio["group"], compared, f"{ratio['median']:.2f}", f"{low:.2f} to {high:.2f}", target))
    return table(("what", "compared", "speed", "quartiles", "target"), body)


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw all ratios but those to recurrences in torch, which are far larger, with their quartiles and targets."""
    ratios = [ratio for ratio in found["ratios"] if ratio["relative_to"] != "recurrences in torch"]
    figure = Figure(figsize=(9, 0.2 * len(ratios) + 0.7), layout="constrained")
    axes = figure.subplots()
    for y, ratio in enumerate(ratios):
        met = ratio["target"] is None or ratio["median"] >= ratio["target"]
        color = "C0" if met else "C3"
        axes.plot(ratio["quartiles"], (y, y), color=color, linewidth=1.5)
        axes.plot(ratio["median"], y, "o", color=color, markersize=4)
        if ratio["target"] is not None:
            axes.plot(ratio["target"], y, "|", color="0.3", markersize=10)
    labels = [f"{ratio['group']}: {ratio['what']} / {ratio['relative_to']}" for ratio in ratios]
    axes.set_yticks(range(len(ratios)), labels, fontsize=8)
    axes.set(xscale="log", ylim=(len(ratios) - 0.5, -0.5), xlabel="speed relative to the other")
    axes.set_xticks([0.2, 0.5, 1, 2, 4], ["0.2", "0.5", "1", "2", "4"])
    axes.minorticks_off()
    axes.grid(axis="x", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    with rc_context({"svg.hashsalt": "structattn"}):  # the same file at each run
        buffer = StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    path.write_text(re.sub(r"\n(?!\s*<g id)\s*", " ", buffer.getvalue()) + "\n")  # a group of elements a line


def page(docs: Path, models: str) -> str:
    """Return the page, and draw its figure."""
    found = results_of("ratios")
    with rc_context():
        rcdefaults()  # in place of the settings of the user
        draw(found, docs / FIGURE)
    return f"""# Benchmarks

How fast structattn is relative to other libraries, and models with a stack relative to those without. `make bench`
installs the other libraries into a separate environment, and prints this table ({found["minutes"]} minutes on
{found["date"]}, {found["processor"]}, torch {found["torch"]}). [Measurements](measurements.md) covers operators, parts
of a training step, memory and reliability. {models}

Each row is the speed of the first relative to the second. Both are measured in every round, one after the other; the
table has the median and the quartiles of the ratios. Times are processor time on one thread, for language models wall
time on two threads. CTranslate2 {found["ctranslate2"]} has the same random weights; MarianMT is from Hugging Face
transformers {found["transformers"]}. Targets are this project's own.

![Speed relative to the other, with quartiles; a line marks the target, red is below it]({FIGURE})

{rows(found)}
The operations of the nondeterministic stack are n³/6 · (Q³S + Q²S) multiply-adds forward and twice that backward. Its
tables are float32, the matrix product is float64.
"""

"""Results files, and how their numbers are shown."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"


def results_of(name: str) -> dict[str, Any]:
    """Read a results file."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds < 1 else f"{seconds:.1f} s"

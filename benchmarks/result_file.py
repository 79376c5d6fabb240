"""The file to which a benchmark writes its results, as JSON."""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def parse_output(description: str) -> Path | None:
    """Return the argument of ``--output``, the only option of a benchmark."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=raw)
    parser.add_argument("--output", type=Path, help="write the results to this JSON file")
    return parser.parse_args().output


def heading(command: str) -> dict[str, Any]:
    """Return what a file says first: the command, and the date."""
    return {"command": command, "date": datetime.now(UTC).date().isoformat()}


def write_results(results: object, output: Path | None) -> None:
    """Write the results if a file is given."""
    if output:
        output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def print_and_write(results: object, output: Path | None) -> None:
    """Print the results, and write them if a file is given."""
    print(json.dumps(results, indent=1))
    write_results(results, output)

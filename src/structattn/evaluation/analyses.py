"""What is found out about a run beside its scores, kept as JSON in its folder for reports."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from structattn.support.files import write_atomically

FORMAT_VERSION = 1


def analysis_path(folder: Path, name: str) -> Path:
    """Where a run folder keeps an analysis."""
    return folder / "analyses" / f"{name}.json"


def hypotheses_path(folder: Path, split: str) -> Path:
    """Where a run folder keeps its translations of a split, one a line."""
    return folder / "scores" / f"{split}.translations.txt"


def write_analysis(folder: Path, name: str, kind: str, content: Mapping[str, Any]) -> Path:
    """Write ``analyses/NAME.json`` into a run folder, whole or not at all; ``kind`` says what it holds."""
    path = analysis_path(folder, name)
    path.parent.mkdir(exist_ok=True)
    found = {"format_version": FORMAT_VERSION, "kind": kind, **content}
    write_atomically(path, json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return path

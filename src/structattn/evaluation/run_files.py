"""Files that evaluation writes into a run folder: translations, and analyses as JSON for reports."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from structattn.support.files import create_folder
from structattn.support.json_files import write_json

FORMAT_VERSION = 1


def analysis_path(run_dir: Path, name: str) -> Path:
    """Return the path of an analysis in a run folder."""
    return run_dir / "analyses" / f"{name}.json"


def hypotheses_path(run_dir: Path, split: str) -> Path:
    """Return the path of the translations of a split, one per line."""
    return run_dir / "scores" / f"{split}.translations.txt"


def write_analysis(run_dir: Path, name: str, kind: str, content: Mapping[str, Any]) -> Path:
    """Write ``analyses/NAME.json`` into a run folder atomically; ``kind`` names the type of its content."""
    path = analysis_path(run_dir, name)
    create_folder(path.parent)
    write_json(path, "analysis", {"format_version": FORMAT_VERSION, "kind": kind, **content})
    return path

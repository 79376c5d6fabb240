"""Files that evaluation writes into a run folder: translations, and analyses as JSON for reports."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from structattn.support.errors import DataError, StructattnError
from structattn.support.files import create_folder, sha256_of_file
from structattn.support.json_files import read_json, write_json
from structattn.support.reading import read_bytes

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


def read_translations(folder: Path, split: str, count: int) -> list[str]:
    """Return the translations that evaluation wrote for a split.

    Args:
        folder: a run folder.
        split: the translated split.
        count: the number of its lines.

    Raises:
        StructattnError: there are none.
        DataError: their file is damaged, has changed since it was scored, or holds another number of lines.
    """
    path = hypotheses_path(folder, split)
    if not path.exists():
        raise StructattnError(f"{path} is missing; `structattn evaluate {folder} --split {split}` writes it")
    try:
        lines = read_bytes(path).decode().split("\n")[:-1]  # a CR is an ordinary character
    except UnicodeDecodeError as error:
        raise DataError(path, f"is damaged, run `structattn evaluate` again: {error}") from None
    if _scored_digest(folder, split) not in (None, sha256_of_file(path)):
        raise DataError(path, "changed since it was scored; run `structattn evaluate` again")
    if len(lines) != count:
        raise DataError(path, f"holds {len(lines)} translations of {count} lines; run `structattn evaluate` again")
    return lines


def _scored_digest(folder: Path, split: str) -> str | None:
    """Return the digest of the translations that were scored; None if it is not known."""
    path = folder / "scores" / f"{split}.json"
    digest: str | None = read_json(path, "scores").get("translations_digest") if path.exists() else None
    return digest

"""Analyses of test suites in a run folder: those of different files do not replace each other."""

from collections.abc import Iterable, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any

from structattn.runs.store import analysis_path, write_analysis
from structattn.support.environment import printable
from structattn.support.errors import DataError
from structattn.support.files import path_from, sha256_of_file
from structattn.support.json_files import read_json
from structattn.support.reading import read_errors
from structattn.tasks.loaded import LoadedRun


def write_suite_analysis(
    run: LoadedRun, name: str, kind: str, content: Mapping[str, Any], files: Iterable[Path]
) -> Path:
    """Write the scores of a suite to ``analyses/NAME.json`` in the run folder, with the digests of its files.

    If that is of another suite, they go to ``NAME-2.json``, and so on. It is of the same one if a file has the same
    path, or all have the same content: the scores of a suite that was edited or moved are replaced.
    """
    sources = dict(_source(each, run.run_dir) for each in sorted(set(files)))
    names = chain([name], (f"{name}-{number}" for number in count(2)))
    free = next(each for each in names if _holds_no_other(analysis_path(run.run_dir, each), sources))
    origin = {"update": run.update, "prepared_digest": run.prepared.digest, "sources": sources}
    return write_analysis(run.run_dir, free, kind, origin | dict(content))


def _source(path: Path, run_dir: Path) -> tuple[str, str]:
    """Return the path of a file relative to the run folder, and its digest."""
    with read_errors(path):
        return printable(path_from(run_dir, path)), sha256_of_file(path)


def _holds_no_other(path: Path, sources: Mapping[str, str]) -> bool:
    """Return whether there is no analysis of another suite; older analyses have no sources, and are replaced."""
    if not path.exists():
        return True
    try:
        stored = read_json(path, "analysis").get("sources", sources)
    except DataError:  # damaged, so it is replaced, too
        return True
    return not stored.keys().isdisjoint(sources) or sorted(stored.values()) == sorted(sources.values())

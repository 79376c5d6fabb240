"""Compare two evaluated translation runs: paired bootstrap on the whole split and by bins of sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from structattn.metrics.translation import PairedDifference, compare_systems
from structattn.runs.analyses import analysis_path, hypotheses_path, read_translations, write_analysis
from structattn.runs.folder import RunFolder, existing_run
from structattn.support.errors import DataError, UsageError
from structattn.support.files import sha256_of_file
from structattn.support.json_files import read_json
from structattn.tasks.translation.bleu_by_bin import BinDifference, Values, differences_by_bin
from structattn.text.folders.prepared import PreparedFolder, open_prepared


class _Lines(NamedTuple):
    first: Sequence[str]
    second: Sequence[str]
    references: Sequence[str]
    tokenizer: str


def compare_runs(
    first: Path, second: Path, split: str, samples: int = 1000, data: Path | None = None
) -> Mapping[str, PairedDifference]:
    """Compare the translations that evaluation wrote for two runs, with the BLEU tokenizer of the first run.

    Args:
        first: a run folder.
        second: another run folder.
        split: the translated split.
        samples: the number of bootstrap samples; at least 40 for 95 % intervals.
        data: the prepared folder, if it was moved.

    Returns:
        Metric -> difference.

    Raises:
        StructattnError: a folder is not a run folder, or holds no translations of the split.
        DataError: a file of translations is damaged.
        UsageError: the runs translate different lines.
    """
    lines = _lines(first, second, split, data)
    return compare_systems(lines.first, lines.second, lines.references, samples, lines.tokenizer)


def compare_runs_by_bin(
    base: Path, other: Path, split: str, samples: int = 1000, data: Path | None = None
) -> list[BinDifference]:
    """Return differences in BLEU by reference length, and by the base's off-diagonality if that was evaluated.

    See ``compare_runs`` for the arguments and other errors.

    Raises:
        DataError: the file with the base's off-diagonality is damaged or belongs to other sentences.
    """
    lines = _lines(base, other, split, data)
    return differences_by_bin(
        lines.first,
        lines.second,
        lines.references,
        _off_diagonality(base, split, len(lines.references)),
        samples,
        lines.tokenizer,
    )


def write_comparison(
    base: Path, other: Path, split: str, whole: Mapping[str, PairedDifference], bins: Sequence[BinDifference]
) -> Path:
    """Write the comparison of a run with a base to ``analyses/SPLIT-against-BASE.json`` in the run folder."""
    name = base.resolve().name
    content = {
        "split": split,
        "base": name,
        "translations": {
            "base": sha256_of_file(hypotheses_path(base, split)),
            "run": sha256_of_file(hypotheses_path(other, split)),
        },
        "whole": {metric: asdict(difference) for metric, difference in whole.items()},
        "bins": [asdict(difference) for difference in bins],
    }
    return write_analysis(other, f"{split}-against-{name}", "comparison", content)


def _lines(first: Path, second: Path, split: str, data: Path | None) -> _Lines:
    sources = [_prepared(folder, data).texts(split, "source") for folder in (first, second)]
    references = [_prepared(folder, data).texts(split, "target") for folder in (first, second)]
    if sources[0] != sources[1] or references[0] != references[1]:
        raise UsageError(f"{first} and {second} have different lines in {split!r}; expected runs on the same data")
    tokenizer = RunFolder(first).read_settings().evaluation.bleu_tokenizer
    count = len(references[0])
    return _Lines(
        read_translations(first, split, count), read_translations(second, split, count), references[0], tokenizer
    )


def _off_diagonality(folder: Path, split: str, sentences: int) -> dict[str, Values]:
    """Attribute name -> off-diagonality of each sentence; empty if it was not evaluated."""
    path = analysis_path(folder, f"{split}-attention")
    if not path.exists():
        return {}
    try:
        kept = read_json(path, "analysis")["off_diagonality"]
        found = {f"off-diagonality, {kind}": np.array(values, np.float64) for kind, values in kept.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(path, f"expected the off-diagonality of each sentence: {error!r}") from None
    for values in found.values():
        if values.shape != (sentences,):
            raise DataError(
                path, f"has {values.size} values for {sentences} sentences; run `structattn evaluate` again"
            )
    return found


def _prepared(folder: Path, data: Path | None) -> PreparedFolder:
    return open_prepared(data or existing_run(folder).read_settings().data)

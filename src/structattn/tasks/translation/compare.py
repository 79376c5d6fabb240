"""Compare two translation systems by paired bootstrap: test sets, and bins of sentences (You et al. 2020, 6.2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from structattn.metrics.translation import BleuStatistics, PairedDifference, bleu_statistics, compare_systems
from structattn.runs.folder import RunFolder, existing_run
from structattn.runs.store import analysis_path, hypotheses_path, read_translations, write_analysis
from structattn.support.environment import name_of
from structattn.support.errors import DataError, UsageError
from structattn.support.files import sha256_of_file
from structattn.support.json_files import read_json
from structattn.support.seeds import numpy_generator
from structattn.support.shapes import Float
from structattn.tasks.trained_data import open_data, require_trained_on
from structattn.text.folders.prepared import PreparedFolder

REFERENCE_LENGTH = "reference length"
_SEED = 12345
_BINS = 5
Values = Float[np.ndarray, " sentences"]


@dataclass(frozen=True)
class Bin:
    """A bin of sentences."""

    low: float
    high: float
    members: NDArray[np.int64]


def equal_count_bins(values: Values) -> list[Bin]:
    """Return five bins of equal size, split at quantiles; equal values share a bin, and empty bins are dropped."""
    return _split_at(values, np.quantile(values, np.arange(1, _BINS) / _BINS) if len(values) else values)


def equal_width_bins(values: Values) -> list[Bin]:
    """Return five bins of equal width between the minimum and the maximum; empty bins are dropped."""
    return _split_at(values, np.linspace(values.min(), values.max(), _BINS + 1)[1:-1] if len(values) else values)


BINNINGS: Mapping[str, Callable[[Values], list[Bin]]] = MappingProxyType(
    {"equal count": equal_count_bins, "equal width": equal_width_bins}
)
"""Name -> function that puts sentences into bins."""


def _split_at(values: Values, edges: NDArray[np.float64]) -> list[Bin]:
    """Split at edges; a value equal to an edge belongs to the bin below it."""
    indices = np.searchsorted(edges, values, side="left")
    bins = [np.flatnonzero(indices == index) for index in np.unique(indices)]
    return [Bin(float(values[members].min()), float(values[members].max()), members) for members in bins]


@dataclass(frozen=True)
class BinDifference:
    """BLEU of two systems on the sentences of one bin, and its difference, other - base.

    Args:
        attribute: the sentence attribute that defines the bins: ``reference length``, in sacrebleu's words, or another.
        binning: ``equal count`` or ``equal width``.
        low: the minimum of the attribute in the bin.
        high: the maximum of the attribute in the bin.
        lower: lower end of the difference's 95 % interval, by paired bootstrap resampling of the bin's sentences.
        upper: upper end of that interval.
    """

    attribute: str
    binning: str
    low: float
    high: float
    sentences: int
    base: float
    other: float
    difference: float
    lower: float
    upper: float


def differences_by_bin(
    base: Sequence[str],
    other: Sequence[str],
    references: Sequence[str],
    numbers: dict[str, Values] | None = None,
    samples: int = 1000,
    tokenizer: str = "13a",
) -> list[BinDifference]:
    """Return the differences by reference length, in quintiles, and by other attributes, in five bins of either kind.

    ``numbers`` has the values of other attributes for each sentence. Cost: each sentence's n-grams are counted once;
    then samples * sentences for each binning.

    Raises:
        UsageError: sacrebleu is not installed.
        ValueError: the numbers of lines differ.
    """
    one, two = (bleu_statistics(lines, references, tokenizer) for lines in (base, other))
    wanted = [(REFERENCE_LENGTH, "equal count", one.reference_words.astype(np.float64))]
    wanted += [(name, binning, values) for name, values in (numbers or {}).items() for binning in BINNINGS]
    return [
        _difference(one, two, attribute, binning, each, samples)
        for attribute, binning, values in wanted
        for each in BINNINGS[binning](_require_one_per_sentence(values, len(references), attribute))
    ]


def _require_one_per_sentence(values: Values, sentences: int, attribute: str) -> Values:
    if len(values) != sentences:
        raise ValueError(f"{attribute}: {len(values)} numbers for {sentences} sentences; expected one per sentence")
    return values


def _difference(
    one: BleuStatistics, two: BleuStatistics, attribute: str, binning: str, of_bin: Bin, samples: int
) -> BinDifference:
    base, other = (BleuStatistics(each.counts[of_bin.members]) for each in (one, two))
    sentences = len(of_bin.members)
    every = np.ones(sentences, dtype=np.int64)
    shares = np.full(sentences, 1 / sentences)
    counts = numpy_generator(_SEED, "bootstrap").multinomial(sentences, shares, size=samples)
    spread: Float[np.ndarray, " samples"] = other.resampled(counts) - base.resampled(counts)
    lower, upper = np.quantile(spread, (0.025, 0.975)).tolist()
    values = base.bleu(every), other.bleu(every)
    return BinDifference(
        attribute, binning, of_bin.low, of_bin.high, sentences, *values, values[1] - values[0], lower, upper
    )


class _Lines(NamedTuple):
    first: Sequence[str]
    second: Sequence[str]
    references: Sequence[str]
    tokenizer: str


def compare_runs(
    first: Path, second: Path, split: str, samples: int = 1000, data: Path | None = None
) -> Mapping[str, PairedDifference]:
    """Compare the translations of two evaluated runs, with the BLEU tokenizer of the first: metric -> difference.

    At least 40 ``samples`` are needed for 95 % intervals.

    Raises:
        StructattnError: a folder is not a run folder, or holds no translations of the split.
        DataError: the data are missing, or they or a file of translations are damaged.
        CheckpointError: a run was trained on other data.
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
    name = name_of(base)
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
    prepared = [_prepared(folder, data) for folder in (first, second)]
    sources, references = ([each.texts(split, side) for each in prepared] for side in ("source", "target"))
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
        numbers = {f"off-diagonality, {kind}": np.array(values, np.float64) for kind, values in kept.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(path, f"expected the off-diagonality of each sentence: {error!r}") from None
    for values in numbers.values():
        if values.shape != (sentences,):
            raise DataError(
                path, f"has {values.size} values for {sentences} sentences; run `structattn evaluate` again"
            )
    return numbers


def _prepared(folder: Path, data: Path | None) -> PreparedFolder:
    run = existing_run(folder)
    settings = run.read_settings()
    if settings.task != "translation":
        expected = "expected all runs to have language_modeling, or all translation"
        raise UsageError(f"{folder}: has task {settings.task!r}; {expected}")
    prepared = open_data(folder, settings, data)
    require_trained_on(folder, run.read_card()["data"]["digest"], prepared)
    return prepared

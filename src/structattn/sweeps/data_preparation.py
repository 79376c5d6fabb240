"""The prepared folder that a trial's settings ask for."""

from pathlib import Path

from structattn.data.formal_languages import FormalLanguageSizes, prepare_formal_language
from structattn.data.parallel.filters import Filters
from structattn.data.parallel.normalization import Normalization
from structattn.data.parallel.prepare import prepare_parallel
from structattn.data.parallel.tokenizer_training import Coding
from structattn.data.transductions.prepare import TransductionSizes, prepare_transduction
from structattn.settings.prepare import FormalLanguageData, ParallelText, Prepare, TransductionPairs


def make_data(folder: Path, data: Prepare) -> None:
    """Make a prepared folder, whole or not at all.

    Args:
        folder: must not exist.
        data: what is made; those of a trial have the trial's seed where they are drawn and have none of their own.

    Raises:
        StructattnError: a text is refused, a library is missing, or sizes are impossible.
    """
    if isinstance(data, ParallelText):
        _code(folder, data)
    elif isinstance(data, TransductionPairs):
        _draw_pairs(folder, data)
    else:
        _draw_strings(folder, data)


def _code(folder: Path, data: ParallelText) -> None:
    prepare_parallel(
        folder,
        {name: [Path(file) for file in files] for name, files in data.splits.items()},
        coding=Coding(data.level, data.joint, data.size, data.threshold, data.marker),
        filters=Filters(data.max_characters, data.max_ratio, data.drop_full_stops, data.sample, data.sample_seed),
        normalization=Normalization(data.nfkc, data.lowercase),
    )


def _draw_pairs(folder: Path, data: TransductionPairs) -> None:
    sizes = TransductionSizes(data.train_lengths, data.test_lengths, data.valid_per_length, data.test_per_length)
    prepare_transduction(folder, data.transduction, seed=data.seed or 0, sizes=sizes)


def _draw_strings(folder: Path, data: FormalLanguageData) -> None:
    sizes = FormalLanguageSizes(
        data.train, data.valid, data.test_per_length, data.train_lengths, data.test_lengths, data.group
    )
    prepare_formal_language(folder, data.language, data.reading, seed=data.seed or 0, sizes=sizes)

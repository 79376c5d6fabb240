"""Prepare the data of a trial."""

from dataclasses import fields
from pathlib import Path

from structattn.settings.prepare import (
    FormalLanguageData,
    ParallelText,
    Prepare,
    TextData,
    TransductionPairs,
    TransformationPairs,
    Treebank,
)
from structattn.support.processes import available_cores
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.parsing.prepare import prepare_trees
from structattn.tasks.transductions.prepare import TransductionSizes, prepare_transduction
from structattn.tasks.transformations.prepare import TransformationSizes, prepare_transformation
from structattn.tasks.translation.filters import Filters
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.normalization import Normalization


def prepare_data(folder: Path, data: Prepare) -> None:
    """Write a prepared folder atomically.

    Args:
        folder: the folder to create; it must not exist.
        data: the settings of the data.

    Raises:
        StructattnError: a text is invalid, an optional library is missing, or a size is out of range.
    """
    if isinstance(data, ParallelText):
        _prepare_parallel_text(folder, data)
    elif isinstance(data, TextData):
        _prepare_text(folder, data)
    elif isinstance(data, Treebank):
        _prepare_trees(folder, data)
    elif isinstance(data, TransductionPairs):
        _sample_pairs(folder, data)
    elif isinstance(data, TransformationPairs):
        _sample_transformation(folder, data)
    else:
        _sample_strings(folder, data)


def _prepare_parallel_text(folder: Path, data: ParallelText) -> None:
    prepare_parallel(
        folder,
        {name: [Path(file) for file in files] for name, files in data.splits.items()},
        tokenizer=TokenizerSettings(
            data.level, data.joint, data.vocabulary_size, data.vocabulary_threshold, data.marker
        ),
        filters=Filters(data.max_characters, data.max_ratio, data.drop_full_stops, data.sample, data.sample_seed),
        normalization=Normalization(data.nfkc, data.lowercase),
        workers=available_cores(),
    )


def _prepare_text(folder: Path, data: TextData) -> None:
    test = None if data.test is None else Path(data.test)
    settings = TextSettings(**data.model_dump(exclude={"kind", "train", "valid", "test"}))
    prepare_language_modeling(folder, Path(data.train), Path(data.valid), test, settings, workers=available_cores())


def _prepare_trees(folder: Path, data: Treebank) -> None:
    files = {name: Path(next(iter(paths))) for name, paths in data.splits.items()}
    tokenizer = TokenizerSettings(data.level, False, data.vocabulary_size, data.vocabulary_threshold)
    prepare_trees(folder, files, tags=data.tags, tokenizer=tokenizer)


def _sample_pairs(folder: Path, data: TransductionPairs) -> None:
    sizes = TransductionSizes(data.train_lengths, data.test_lengths, data.valid_per_length, data.test_per_length)
    prepare_transduction(folder, data.transduction, seed=data.seed or 0, sizes=sizes)


def _sample_transformation(folder: Path, data: TransformationPairs) -> None:
    published = None if data.published is None else Path(data.published)
    sizes = TransformationSizes(data.train, data.valid, data.test, data.gen)
    prepare_transformation(
        folder, data.transformation, published=published, layout=data.layout, seed=data.seed or 0, sizes=sizes
    )


def _sample_strings(folder: Path, data: FormalLanguageData) -> None:
    sizes = FormalLanguageSizes(**{field.name: getattr(data, field.name) for field in fields(FormalLanguageSizes)})
    prepare_formal_language(folder, data.language, data.variant, seed=data.seed or 0, sizes=sizes)

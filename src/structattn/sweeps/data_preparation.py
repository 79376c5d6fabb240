"""Prepare the data of a trial, and find changes of the data and of their source files since then."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

from structattn.settings.prepare import (
    FormalLanguageData,
    ParallelText,
    Prepare,
    RecognitionData,
    TextData,
    TransductionPairs,
    TransformationPairs,
    Treebank,
)
from structattn.support.digest_cache import cached_sha256
from structattn.support.errors import DataError, SettingsError, UsageError
from structattn.support.files import sha256_of_file
from structattn.support.json_files import Shape, check_shape, read_json, write_json
from structattn.support.processes import available_cores
from structattn.sweeps.trials import Trial
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.formal_languages.registry import formal_language
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.parsing.prepare import prepare_trees
from structattn.tasks.recognition.prepare import RecognitionSizes, prepare_recognition
from structattn.tasks.recognition.registry import recognition_language
from structattn.tasks.transductions.prepare import TransductionSizes, prepare_transduction
from structattn.tasks.transductions.registry import transduction
from structattn.tasks.transformations.prepare import TransformationSizes, prepare_transformation
from structattn.tasks.translation.filters import Filters
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.header import LOG_PROBABILITIES, read_header
from structattn.text.lines import Normalization


def prepare_data(folder: Path, data: Prepare) -> None:
    """Write a prepared folder atomically.

    Args:
        folder: the folder to create; it must not exist.
        data: the settings of the data.

    Raises:
        StructattnError: a text is invalid, an optional library is missing, or a size is out of range.
    """
    match data:
        case ParallelText():
            prepare_parallel(
                folder,
                _paths(data),
                tokenizer=TokenizerSettings(
                    data.level, data.joint, data.vocabulary_size, data.vocabulary_threshold, data.marker
                ),
                filters=Filters(
                    data.max_characters, data.max_ratio, data.drop_full_stops, data.sample, data.sample_seed
                ),
                normalization=Normalization(data.nfkc, data.lowercase),
                workers=available_cores(),
            )
        case Treebank():
            tokenizer = TokenizerSettings(data.level, False, data.vocabulary_size, data.vocabulary_threshold)
            trees = {name: path for name, (path,) in _paths(data).items()}
            prepare_trees(folder, trees, tags=data.tags, tokenizer=tokenizer, layout=data.layout)
        case TextData():
            test = None if data.test is None else Path(data.test)
            text = TextSettings(**data.model_dump(exclude={"kind", "train", "valid", "test"}))
            prepare_language_modeling(folder, Path(data.train), Path(data.valid), test, text, workers=available_cores())
        case TransductionPairs():
            pairs = TransductionSizes(
                data.train_lengths, data.test_lengths, data.valid_per_length, data.test_per_length
            )
            prepare_transduction(folder, data.transduction, seed=data.seed or 0, sizes=pairs)
        case RecognitionData():
            labelled = RecognitionSizes(**{field.name: getattr(data, field.name) for field in fields(RecognitionSizes)})
            prepare_recognition(folder, data.language, data.protocol, seed=data.seed or 0, sizes=labelled)
        case TransformationPairs():
            published = None if data.published is None else Path(data.published)
            sizes = TransformationSizes(data.train, data.valid, data.test, data.gen)
            prepare_transformation(
                folder, data.transformation, published=published, layout=data.layout, seed=data.seed or 0, sizes=sizes
            )
        case FormalLanguageData():
            strings = FormalLanguageSizes(
                **{field.name: getattr(data, field.name) for field in fields(FormalLanguageSizes)}
            )
            prepare_formal_language(folder, data.language, data.variant, seed=data.seed or 0, sizes=strings)


def _paths(data: ParallelText | Treebank) -> dict[str, list[Path]]:
    """Return split -> its files."""
    return {name: [Path(file) for file in files] for name, files in data.splits.items()}


def digest_of_data(folder: Path) -> str:
    """Return the SHA-256 of the digests of a prepared folder's files.

    It is the same wherever data are prepared again: it leaves out the header, which has the paths of the sources, and
    log-probabilities, whose last digits may depend on the processor.

    Raises:
        DataError: the header is missing or damaged.
    """
    header, _ = read_header(folder)
    files = {name: digest for name, digest in header.files.items() if Path(name).name != LOG_PROBABILITIES.name}
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


_KIND: Final = "sources"


def write_sources(trial: Trial) -> None:
    """Write the digests of a trial's source files beside the folder of its data, before these are prepared."""
    write_json(_path(trial), _KIND, {"files": _digests(trial)})


def recorded_sources(trial: Trial) -> dict[str, str]:
    """Return the digests of a trial's source files, by name, when its data were prepared.

    Raises:
        DataError: the file that has them is damaged.
    """
    if trial.prepare is None:
        return _digests(trial)
    if not _path(trial).exists():  # prepared by an earlier version
        return {}
    files: dict[str, str] = check_shape(_SourcesShape, read_json(_path(trial), _KIND), _path(trial))["files"]
    return files


def require_names(trials: Iterable[Trial]) -> None:
    """Check that the languages and transductions of trials exist, before each trial fails on its own.

    Raises:
        SettingsError: one does not; the message names the first trial that needs it.
    """
    first: dict[Path, Trial] = {}
    for trial in trials:
        first.setdefault(trial.settings.data, trial)
    for trial in first.values():
        try:
            match trial.prepare:
                case FormalLanguageData(language=name, files=()):
                    formal_language(name)
                case RecognitionData(language=name, protocol=protocol, files=()):
                    recognition_language(name, protocol)
                case TransductionPairs(transduction=name):
                    transduction(name)
        except UsageError as error:
            raise SettingsError(f"trial {trial.title}: prepare: {error}") from None


def require_data(trials: Iterable[Trial]) -> None:
    """Check that there are data of trials which name a prepared folder, before each of them fails on its own.

    Raises:
        DataError: a folder is missing or damaged.
    """
    for folder in sorted({trial.settings.data for trial in trials if trial.prepare is None}):
        read_header(folder)


def require_same_prepared_sources(trials: Iterable[Trial]) -> None:
    """Check that no source file has changed since the data of the trials were prepared.

    Raises:
        DataError: a file has changed.
    """
    prepared = {trial.settings.data: trial for trial in trials if trial.prepare is not None}
    for folder, trial in prepared.items():
        if folder.exists():
            require_same_sources(recorded_sources(trial), trial, folder)


def require_same_sources(recorded: Mapping[str, str], trial: Trial, made: Path | str) -> None:
    """Check that the source files of a trial have not changed; those that are not there cannot be compared.

    Args:
        recorded: the digests of the files, by name, when the data were prepared.
        trial: the trial.
        made: the folder, or the line of a file, that was made from them, for the message.

    Raises:
        DataError: a file has changed.
    """
    for name, path in _files(trial).items():
        if name in recorded and (digest := cached_sha256(path, recorded[name])) != recorded[name]:
            raise DataError(
                made,
                f"made when the SHA-256 of {path} was {recorded[name]}, which is now {digest}; expected the same file, "
                "or one with another name",
            )


class _SourcesShape(Shape):
    files: dict[str, str]


def _path(trial: Trial) -> Path:
    return trial.settings.data.with_suffix(".sources.json")


def _digests(trial: Trial) -> dict[str, str]:
    return {name: sha256_of_file(path) for name, path in _files(trial).items()}


def _files(trial: Trial) -> dict[str, Path]:
    """Return the existing source files of a trial, by their names in its settings.

    For data that were prepared before, that is the header of their folder, which has the digests of the other files.
    """
    if trial.prepare is None:
        names = {"header.json": trial.settings.data / "header.json"}
    else:
        names = {file: Path(file) for file in trial.prepare.files}
    return {name: path for name, path in names.items() if path.is_file()}

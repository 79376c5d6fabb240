"""Preparation of formal languages: training, validation and test strings, the last two with exact probabilities.

The data sets of DuSell & Chiang (2020, section 5; 2024, section 6): groups of strings of one length, which is drawn
uniformly from the valid lengths; the test set has equally many strings of each length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from structattn.settings.choices import Variant
from structattn.support.errors import UsageError
from structattn.support.progress import progress
from structattn.support.seeds import numpy_generator
from structattn.support.special_tokens import FIRST_SYMBOL
from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.grammar import with_variant
from structattn.tasks.formal_languages.language_files.language_file import DEFINITION, LanguageFile, find_language_file
from structattn.tasks.formal_languages.length_table import FloatArray, IndexArray
from structattn.tasks.formal_languages.registry import FORMAL_LANGUAGES, Language, formal_language
from structattn.tasks.formal_languages.summary import SUMMARY, summarize
from structattn.tasks.loaded import require_counts
from structattn.text.folders.writing import require_empty_folder, source_entry, write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary


@dataclass(frozen=True)
class FormalLanguageSizes:
    """Numbers and lengths of strings; the defaults are those of the papers.

    Args:
        valid: the number of validation strings, of the same lengths.
        test_per_length: the number of test strings of each valid length.
        train_lengths: minimum and maximum length of ``train`` and ``valid``, not including the end of the string.
        test_lengths: the same for the test set.
        group_size: number of consecutive strings of ``train`` and ``valid`` with equal length, so that batches of them
            need no padding.
        short: the number of training strings after those, of ``short_lengths``, for a curriculum by length.
        short_lengths: their minimum and maximum length.

    Raises:
        UsageError: a number is below 1, or a minimum length is negative or above the maximum.
    """

    train: int = 10_000
    valid: int = 1_000
    test_per_length: int = 100
    train_lengths: tuple[int, int] = (40, 80)
    test_lengths: tuple[int, int] = (40, 100)
    group_size: int = 10
    short: int = 0
    short_lengths: tuple[int, int] = (1, 11)

    def __post_init__(self) -> None:
        if self.short < 0:
            raise UsageError(f"short is {self.short}; expected at least 0")
        counts = ("train", "valid", "test_per_length", "group_size")
        require_counts(**{name: getattr(self, name) for name in counts})
        for name in ("train_lengths", "test_lengths", "short_lengths"):
            low, high = getattr(self, name)
            if not 0 <= low <= high:
                raise UsageError(f"{name} is {low} to {high}; expected 0 <= minimum <= maximum")


def prepare_formal_language(
    folder: Path,
    name: str,
    variant: Variant = "faithful",
    *,
    seed: int = 1,
    test_seed: int = 0,
    sizes: FormalLanguageSizes = FormalLanguageSizes(),
) -> None:
    """Draw the three sets of a language, compute the probabilities of two, and write a prepared folder.

    Strings may occur in more than one set, as in the papers. With the papers' sizes this takes seconds; for
    ``hardest-cfl`` some tens of seconds, nearly all of them for the probabilities of the test set.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        name: a key of ``FORMAL_LANGUAGES``, or the path of a language file, whose text the folder will hold.
        variant: ``faithful`` or ``reference``; see ``formal_language``.
        seed: the seed of ``train`` and ``valid``, which the papers redraw for every run.
        test_seed: the seed of the test set, which all runs share.
        sizes: the numbers and lengths of strings.

    Raises:
        UsageError: no language or variant has that name; or it has no strings of these lengths, or some whose
            probabilities are out of range.
        DataError: the file defines no language; or the folder is not empty, or cannot be written; then nothing is left
            on disk.
    """
    folder = Path(folder)
    require_empty_folder(folder)
    file = find_language_file(name, variant)
    language = formal_language(name, variant) if file is None else file.language
    sources = [] if file is None else [source_entry(Path(name), DEFINITION, folder)]
    lengths = _lengths_of_splits(language, sizes)
    short_lengths = _require_valid_lengths(language, *sizes.short_lengths) if sizes.short else []
    strings = _sample_splits(language, lengths, sizes, {"train": seed, "valid": seed, "test": test_seed})
    strings["train"] += _sample_groups(language, "short", short_lengths, sizes.short, sizes.group_size, seed)
    log_conditionals = _log_conditionals(language, {split: strings[split] for split in ("valid", "test")})
    write_prepared(
        folder,
        kind="formal_language",
        vocabulary=Vocabulary.from_symbols(language.alphabet),
        tokenizer={"level": "character" if max(map(len, language.alphabet)) == 1 else "word"},
        splits={split: (string + FIRST_SYMBOL for string in drawn) for split, drawn in strings.items()},
        sources=sources,
        log_probabilities=log_conditionals,
        extra={
            "language": language.name,
            "variant": variant,
            "seed": seed,
            "test_seed": test_seed,
            "number_of_lengths": {split: len(valid_lengths) for split, valid_lengths in lengths.items()},
            "train_lengths": list(sizes.train_lengths),
            "test_lengths": list(sizes.test_lengths),
            "group_size": sizes.group_size,
            **({"short": sizes.short, "short_lengths": list(sizes.short_lengths)} if sizes.short else {}),
            **({} if file is None else _description(file, lengths, strings["test"], log_conditionals["test"])),
        },
    )


def _description(
    file: LanguageFile, lengths: Mapping[str, list[int]], test: Sequence[IndexArray], log_conditionals: FloatArray
) -> dict[str, Any]:
    """Return what the header has of a language from a file: its text, and a summary."""
    test_lengths = np.array([len(string) for string in test])
    summary = summarize(file.language, file.is_regular, lengths, test_lengths, log_conditionals)
    return {DEFINITION: file.text, SUMMARY: summary}


def _lengths_of_splits(language: Language, sizes: FormalLanguageSizes) -> dict[str, list[int]]:
    train, test = (_require_valid_lengths(language, *limits) for limits in (sizes.train_lengths, sizes.test_lengths))
    return {"train": train, "valid": train, "test": test}


def _require_valid_lengths(language: Language, low: int, high: int) -> list[int]:
    lengths = language.valid_lengths(low, high)
    if not lengths:
        shorter = ", ".join(map(str, language.valid_lengths(0, high)[-5:])) or "none"
        reason = f"has no strings of the lengths {low} to {high}; shorter ones that it has: {shorter}"
        raise UsageError(f"{with_variant(language.name, language.variant)} {reason}")
    return lengths


def _sample_splits(
    language: Language, lengths: Mapping[str, list[int]], sizes: FormalLanguageSizes, seeds: Mapping[str, int]
) -> dict[str, list[IndexArray]]:
    counts = {"train": sizes.train, "valid": sizes.valid}
    strings = {
        split: _sample_groups(language, split, lengths[split], count, sizes.group_size, seeds[split])
        for split, count in counts.items()
    }
    each_length = np.repeat(lengths["test"], sizes.test_per_length)
    return strings | {"test": _sample_each(language, each_length, _generator(language, "test", seeds["test"]))}


def _sample_groups(
    language: Language, split: str, lengths: Sequence[int], count: int, group_size: int, seed: int
) -> list[IndexArray]:
    """Draw ``count`` strings in groups of one length, which is drawn uniformly from ``lengths``."""
    if not count:
        return []
    generator = _generator(language, split, seed)
    groups = generator.choice(lengths, size=-(-count // group_size))
    return _sample_each(language, np.repeat(groups, group_size)[:count], generator)


def _sample_each(language: Language, lengths: IndexArray, generator: np.random.Generator) -> list[IndexArray]:
    """Return a string of each length; a language of one's own may draw others.

    Raises:
        UsageError: it does, or symbols beyond its alphabet.
    """
    strings, last = list(map(np.asarray, language.sample_each(lengths, generator))), len(language.alphabet) - 1
    where = f"formal language {language.name!r}: sample_each returns"
    if len(strings) != len(lengths):
        raise UsageError(f"{where} {len(strings)} strings for {len(lengths)} lengths")
    for drawn, length in zip(strings, lengths.tolist(), strict=True):
        has_shape, is_integer = drawn.shape == (length,), not length or drawn.dtype.kind in "iu"
        if not (has_shape and is_integer and (not length or 0 <= drawn.min() <= drawn.max() <= last)):
            raise UsageError(f"{where} {drawn.tolist()}; expected {length} integers from 0 to {last}")
    return strings


def _generator(language: Language, split: str, seed: int) -> np.random.Generator:
    return numpy_generator(seed, "formal language", *identity_of_draws(language), split)


def identity_of_draws(language: Language) -> tuple[str, ...]:
    """Return what draws depend on: name and variant, or the grammar of a file, whatever the file is called."""
    if isinstance(language, ContextFreeLanguage) and language.name not in FORMAL_LANGUAGES:
        return (repr(language.grammar),)
    return language.name, language.variant


def _log_conditionals(language: Language, strings: Mapping[str, Sequence[IndexArray]]) -> dict[str, FloatArray]:
    """Return log p(string | length) of each string of each split; rounding lifts none above 0."""
    conditionals = {}
    with progress("Computing probabilities", sum(map(len, strings.values())), "strings") as advance:
        for split, drawn in strings.items():
            of_lengths = np.array([language.log_length_probability(len(string)) for string in drawn])
            try:
                log_p = language.log_probabilities(drawn, advance)
            except ValueError as error:
                raise UsageError(f"{language.name}: {error}; expected shorter strings") from None
            _require_probabilities(language, log_p, of_lengths)
            conditionals[split] = np.minimum(log_p - of_lengths, 0.0)
    return conditionals


def _require_probabilities(language: Language, log_p: FloatArray, of_lengths: FloatArray) -> None:
    """Check that strings that were drawn have probabilities, at most those of their lengths; up to rounding."""
    where = f"formal language {language.name!r}:"
    if np.shape(log_p) != of_lengths.shape:
        raise UsageError(f"{where} log_probabilities has shape {np.shape(log_p)}; expected {of_lengths.shape}")
    possible = np.isfinite(log_p) & (log_p <= of_lengths + 1e-6) & (of_lengths <= 1e-6)
    if not possible.all():
        first = np.argmin(possible)
        raise UsageError(
            f"{where} a string that was drawn has log-probability {log_p[first]}, its length {of_lengths[first]}; "
            "expected finite ones, of the string at most that of its length, which is at most 0"
        )

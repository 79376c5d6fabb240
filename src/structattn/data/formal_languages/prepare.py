"""Strings of a formal language to a prepared folder: train, valid and test; the last two with exact probabilities.

The sets of DuSell & Chiang (2020, section 5; 2024, section 6): groups of strings of one length, the length drawn
uniformly from those that have strings; the test set has as many strings of each length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from structattn.data.folders.writing import require_empty_folder, write_prepared
from structattn.data.formal_languages.binary_rules import FloatArray, IndexArray
from structattn.data.formal_languages.language import Language
from structattn.data.formal_languages.normal_form import Reading
from structattn.data.formal_languages.registry import formal_language
from structattn.data.tokenization.vocabulary import Vocabulary
from structattn.support.errors import UsageError
from structattn.support.progress import progress
from structattn.support.seeds import numpy_generator
from structattn.support.special_tokens import FIRST_SYMBOL


@dataclass(frozen=True)
class FormalLanguageSizes:
    """How many strings of which lengths; the defaults are the papers'.

    Args:
        train: strings to train on.
        valid: strings to choose the best epoch by, of the same lengths.
        test_per_length: test strings of each length that has any.
        train_lengths: least and greatest length of ``train`` and ``valid``, the end not counted.
        test_lengths: those of the test set.
        group: so many neighbours in ``train`` and ``valid`` have one length, so that batches of it need no padding.

    Raises:
        UsageError: a number is below 1, or a least length is negative or above the greatest.
    """

    train: int = 10_000
    valid: int = 1_000
    test_per_length: int = 100
    train_lengths: tuple[int, int] = (40, 80)
    test_lengths: tuple[int, int] = (40, 100)
    group: int = 10

    def __post_init__(self) -> None:
        for name in ("train", "valid", "test_per_length", "group"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; expected at least 1")
        for name in ("train_lengths", "test_lengths"):
            low, high = getattr(self, name)
            if not 0 <= low <= high:
                raise UsageError(f"{name} is {low} to {high}; expected 0 <= least <= greatest")


def prepare_formal_language(
    folder: Path,
    name: str,
    reading: Reading = "faithful",
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
        name: a key of ``FORMAL_LANGUAGES``.
        reading: ``faithful`` or ``reference``; see ``formal_language``.
        seed: of ``train`` and ``valid``, which the papers draw anew for every run.
        test_seed: of the test set, which all runs share.
        sizes: how many strings of which lengths.

    Raises:
        UsageError: no language or reading has that name, or it has no strings of the lengths asked for.
        DataError: the folder holds something already, or cannot be written. Nothing is left behind then.
    """
    folder = Path(folder)
    require_empty_folder(folder)
    language = formal_language(name, reading)
    lengths = _lengths_of_splits(language, sizes)
    strings = _drawn(language, lengths, sizes, {"train": seed, "valid": seed, "test": test_seed})
    write_prepared(
        folder,
        kind="formal_language",
        vocabulary=Vocabulary.from_symbols(language.alphabet),
        tokenizer={"level": "character"},
        splits={split: (string + FIRST_SYMBOL for string in drawn) for split, drawn in strings.items()},
        log_probabilities=_log_conditionals(language, {split: strings[split] for split in ("valid", "test")}),
        extra={
            "language": name,
            "reading": reading,
            "seed": seed,
            "test_seed": test_seed,
            "number_of_lengths": {split: len(valid_lengths) for split, valid_lengths in lengths.items()},
            "train_lengths": list(sizes.train_lengths),
            "test_lengths": list(sizes.test_lengths),
            "group": sizes.group,
        },
    )


def _lengths_of_splits(language: Language, sizes: FormalLanguageSizes) -> dict[str, list[int]]:
    train, test = (_some_valid_lengths(language, *limits) for limits in (sizes.train_lengths, sizes.test_lengths))
    return {"train": train, "valid": train, "test": test}


def _some_valid_lengths(language: Language, low: int, high: int) -> list[int]:
    found = language.valid_lengths(low, high)
    if not found:
        raise UsageError(f"{language.name} ({language.reading}) has no strings of the lengths {low} to {high}")
    return found


def _drawn(
    language: Language, lengths: Mapping[str, list[int]], sizes: FormalLanguageSizes, seeds: Mapping[str, int]
) -> dict[str, list[IndexArray]]:
    strings = {}
    for split, valid_lengths in lengths.items():
        generator = numpy_generator(seeds[split], "formal language", language.name, language.reading, split)
        if split == "test":
            chosen = np.repeat(valid_lengths, sizes.test_per_length)
        else:
            count = sizes.train if split == "train" else sizes.valid
            groups = generator.choice(valid_lengths, size=-(-count // sizes.group))
            chosen = np.repeat(groups, sizes.group)[:count]
        strings[split] = language.sample_each(chosen, generator)
    return strings


def _log_conditionals(language: Language, strings: Mapping[str, Sequence[IndexArray]]) -> dict[str, FloatArray]:
    """Log p(string | its length) of each string of each split."""
    found = {}
    with progress("Computing probabilities", sum(map(len, strings.values())), "strings") as advance:
        for split, drawn in strings.items():
            of_lengths = np.array([language.log_length_probability(len(string)) for string in drawn])
            found[split] = language.log_probabilities(drawn, advance) - of_lengths
    return found

"""Preparation of transductions: validation and test pairs. Training pairs are sampled during training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from structattn.support.errors import UsageError
from structattn.support.progress import Advance, progress
from structattn.support.seeds import numpy_generator
from structattn.support.special_tokens import FIRST_SYMBOL
from structattn.tasks.loaded import require_counts
from structattn.tasks.transductions.registry import transduction
from structattn.tasks.transductions.transduction import Strings, Transduction
from structattn.text.folders.writing import require_empty_folder, write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary

KIND: Final = "transduction"
EMPTY, SEPARATOR = "<empty>", "<to>"


@dataclass(frozen=True)
class TransductionSizes:
    """Numbers of pairs and lengths of x; the default lengths are those of Li et al. (2024, section 4.2).

    Args:
        train_lengths: minimum and maximum length in training and validation.
        test_lengths: the same for the test set.
        valid_per_length: the number of validation pairs of each length.
        test_per_length: the number of test pairs of each length.

    Raises:
        UsageError: a number is below 1, or a minimum length is above the maximum.
    """

    train_lengths: tuple[int, int] = (1, 40)
    test_lengths: tuple[int, int] = (41, 100)
    valid_per_length: int = 16
    test_per_length: int = 512

    def __post_init__(self) -> None:
        require_counts(valid_per_length=self.valid_per_length, test_per_length=self.test_per_length)
        for name in ("train_lengths", "test_lengths"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise UsageError(f"{name} is {low} to {high}; expected 1 <= minimum <= maximum")


def vocabulary_of(task: Transduction) -> Vocabulary:
    """Return the vocabulary of a task: its symbols, inputs first, then ``<empty>`` and ``<to>``.

    Raises:
        UsageError: a symbol of an alphabet is empty, reserved, or occurs twice.
    """
    try:
        for alphabet in (task.inputs, task.outputs):
            Vocabulary.from_symbols(alphabet)
        return Vocabulary.from_symbols((*dict.fromkeys((*task.inputs, *task.outputs)), EMPTY, SEPARATOR))
    except ValueError as error:
        raise UsageError(f"transduction {task.name!r}: {error}; expected distinct symbols, none reserved") from None


def prepare_transduction(
    folder: Path, name: str, *, seed: int = 1, test_seed: int = 0, sizes: TransductionSizes = TransductionSizes()
) -> None:
    """Sample the validation and test pairs of a transduction, and write them as sequences ``x <to> y``.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        name: a name that ``transduction`` accepts.
        seed: the seed of the validation set.
        test_seed: the seed of the test set, which all runs share.
        sizes: the numbers of pairs and lengths of x.

    Raises:
        UsageError: no transduction has that name, or it has no strings of these lengths, or no vocabulary.
        DataError: the folder is not empty, or cannot be written; then nothing is left on disk.
    """
    folder, task = Path(folder), transduction(name)
    require_empty_folder(folder)
    valid, test = (_lengths(task, *lengths) for lengths in (sizes.train_lengths, sizes.test_lengths))
    vocabulary = vocabulary_of(task)
    with progress("Drawing pairs", len(valid) + len(test), "lengths") as advance:
        splits = {
            "valid": _pairs(task, vocabulary, valid, sizes.valid_per_length, seed, "valid", advance),
            "test": _pairs(task, vocabulary, test, sizes.test_per_length, test_seed, "test", advance),
        }
        write_prepared(
            folder,
            kind=KIND,
            vocabulary=vocabulary,
            tokenizer={"level": "word"},
            splits=splits,
            extra={
                "transduction": name,
                "seed": seed,
                "test_seed": test_seed,
                "train_lengths": list(sizes.train_lengths),
                "test_lengths": list(sizes.test_lengths),
            },
        )


def _lengths(task: Transduction, low: int, high: int) -> Sequence[int]:
    if not (lengths := task.valid_lengths(low, high)):
        raise UsageError(f"{task.name}: has no strings of the lengths {low} to {high}")
    return lengths


def _pairs(
    task: Transduction,
    vocabulary: Vocabulary,
    lengths: Sequence[int],
    count: int,
    seed: int,
    split: str,
    advance: Advance,
) -> Iterator[Strings]:
    for length in lengths:
        generator = numpy_generator(seed, "transduction", task.name, split, length)
        x, y = task.sample(length, count, generator)
        separator = np.full((count, 1), vocabulary.id_of[SEPARATOR], dtype=np.int64)
        yield from np.concatenate([input_ids(task, x), separator, output_ids(task, vocabulary, y)], axis=1)
        advance()


def input_ids(task: Transduction, x: Strings) -> Strings:
    """Return the token ids of inputs, which come first in the vocabulary, in order."""
    return x + FIRST_SYMBOL


def output_ids(task: Transduction, vocabulary: Vocabulary, y: Strings) -> Strings:
    """Return the token ids of outputs."""
    ids: Strings = np.array([vocabulary.id_of[symbol] for symbol in task.outputs], dtype=np.int64)[y]
    return ids

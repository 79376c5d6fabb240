"""A transduction to a prepared folder: the validation and test pairs; training pairs are made while training."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from structattn.data.folders.writing import require_empty_folder, write_prepared
from structattn.data.tokenization.vocabulary import Vocabulary
from structattn.data.transductions.registry import transduction
from structattn.data.transductions.transduction import Strings, Transduction
from structattn.support.errors import UsageError
from structattn.support.seeds import numpy_generator
from structattn.support.special_tokens import FIRST_SYMBOL

KIND: Final = "transduction"
EMPTY, SEPARATOR = "<empty>", "<to>"


@dataclass(frozen=True)
class TransductionSizes:
    """How many pairs of which lengths of x; the lengths are those of Li et al. (2024, section 4.2).

    Args:
        train_lengths: least and greatest length in training and validation.
        test_lengths: those of the test set.
        valid_per_length: validation pairs of each length.
        test_per_length: test pairs of each length.

    Raises:
        UsageError: a number is below 1, or a least length above the greatest.
    """

    train_lengths: tuple[int, int] = (1, 40)
    test_lengths: tuple[int, int] = (41, 100)
    valid_per_length: int = 16
    test_per_length: int = 512

    def __post_init__(self) -> None:
        for name in ("valid_per_length", "test_per_length"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; expected at least 1")
        for name in ("train_lengths", "test_lengths"):
            low, high = getattr(self, name)
            if not 1 <= low <= high:
                raise UsageError(f"{name} is {low} to {high}; expected 1 <= least <= greatest")


def symbols_of(task: Transduction) -> list[str]:
    """All symbols of a task, inputs first, and the two that tell where an answer is asked for."""
    return [*dict.fromkeys((*task.inputs, *task.outputs)), EMPTY, SEPARATOR]


def prepare_transduction(
    folder: Path, name: str, *, seed: int = 1, test_seed: int = 0, sizes: TransductionSizes = TransductionSizes()
) -> None:
    """Draw the validation and test pairs of a transduction and write a prepared folder; ``x <to> y`` is a sequence.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        name: a key of ``TRANSDUCTIONS``.
        seed: of training and validation.
        test_seed: of the test set, which all runs share.
        sizes: how many pairs of which lengths.

    Raises:
        UsageError: no transduction has that name, or it has no strings of the lengths asked for.
        DataError: the folder holds something already, or cannot be written.
    """
    folder, task = Path(folder), transduction(name)
    require_empty_folder(folder)
    for lengths in (sizes.train_lengths, sizes.test_lengths):
        if not task.valid_lengths(*lengths):
            raise UsageError(f"{name}: has no strings of the lengths {lengths[0]} to {lengths[1]}")
    vocabulary = Vocabulary.from_symbols(symbols_of(task))
    splits = {
        "valid": _pairs(task, vocabulary, sizes.train_lengths, sizes.valid_per_length, seed, "valid"),
        "test": _pairs(task, vocabulary, sizes.test_lengths, sizes.test_per_length, test_seed, "test"),
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


def _pairs(
    task: Transduction, vocabulary: Vocabulary, lengths: tuple[int, int], count: int, seed: int, split: str
) -> Iterator[Strings]:
    for length in task.valid_lengths(*lengths):
        generator = numpy_generator(seed, "transduction", task.name, split, length)
        x, y = task.sample(length, count, generator)
        separator = np.full((count, 1), vocabulary.id_of[SEPARATOR], dtype=np.int64)
        yield from np.concatenate([input_ids(task, x), separator, output_ids(task, vocabulary, y)], axis=1)


def input_ids(task: Transduction, x: Strings) -> Strings:
    """Token ids of inputs: they come first in the vocabulary, in their order."""
    return x + FIRST_SYMBOL


def output_ids(task: Transduction, vocabulary: Vocabulary, y: Strings) -> Strings:
    """Token ids of outputs."""
    ids: Strings = np.array([vocabulary.id_of[symbol] for symbol in task.outputs], dtype=np.int64)[y]
    return ids

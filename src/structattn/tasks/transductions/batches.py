"""Batches of input and output strings of a transduction.

Training pairs are generated on the fly, the others come from the prepared folder. All pairs of a batch have the same
lengths.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from structattn.settings.run import RunSettings
from structattn.settings.transformer import reads_bos
from structattn.support.errors import DataError
from structattn.support.seeds import numpy_generator
from structattn.support.special_tokens import BOS, PAD
from structattn.tasks.transductions.prepare import EMPTY, KIND, SEPARATOR, input_ids, output_ids, vocabulary_of
from structattn.tasks.transductions.registry import transduction
from structattn.tasks.transductions.transduction import Transduction
from structattn.text.batching.sequences import Batch
from structattn.text.folders.header import HEADER_NAME
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.tokenization.vocabulary import Vocabulary

Form = Literal["masked", "masked without <bos>", "autoregressive"]
Ids = NDArray[np.int64]  # (N, length)


def form_of(settings: RunSettings) -> Form:
    """Return the form of the task and the model of a run: all output symbols at once, or symbol by symbol."""
    if settings.task == "autoregressive_transduction":
        return "autoregressive"
    return "masked" if reads_bos(settings.model) else "masked without <bos>"


def batch_of(x: Ids, y: Ids, vocabulary: Vocabulary, form: Form, first_example: int = 0) -> Batch:
    """Return pairs of token ids as a batch.

    Inputs are ``<bos> x <empty> .. <empty>``, in the masked forms, or ``<bos> x <to> y`` without the last symbol of y.
    Targets are y at the last positions, and ``<pad>`` before.
    """
    if form == "autoregressive":
        parts = [_column(x, BOS), x, _column(x, vocabulary.id_of[SEPARATOR]), y[:, :-1]]
    else:
        parts = [_column(x, BOS), x, np.full_like(y, vocabulary.id_of[EMPTY])]
    inputs = np.concatenate(parts if form != "masked without <bos>" else parts[1:], axis=1)
    targets = np.concatenate([np.full_like(inputs[:, y.shape[1] :], PAD), y], axis=1)
    return Batch(
        inputs=torch.from_numpy(inputs),
        targets=torch.from_numpy(targets),
        lengths=torch.full((len(inputs),), inputs.shape[1], dtype=torch.int64),
        examples=tuple(range(first_example, first_example + len(inputs))),
    )


def _column(x: Ids, token: int) -> Ids:
    return np.full((len(x), 1), token, dtype=np.int64)


@dataclass(frozen=True)
class TransductionData:
    """A transduction with its vocabulary, the least and greatest length of x in training, and the seed of its pairs."""

    task: Transduction
    vocabulary: Vocabulary
    lengths: tuple[int, int]
    seed: int

    def training_pairs(self, first: int, count: int) -> tuple[Ids, Ids]:
        """Return ``count`` pairs of one length, drawn uniformly from the training lengths.

        The result is a pure function of the seed and of ``first``, the index of the first pair.
        """
        generator = numpy_generator(self.seed, "transduction", self.task.name, "train", first)
        length = int(generator.choice(self.task.valid_lengths(*self.lengths)))
        x, y = self.task.sample(length, count, generator)
        return input_ids(self.task, x), output_ids(self.task, self.vocabulary, y)


def transduction_data(prepared: PreparedFolder, seed: int) -> TransductionData:
    """Return the transduction of a prepared folder.

    Raises:
        DataError: the folder is of another kind, its header names no transduction and lengths, or its vocabulary is not
            that of the transduction.
        UsageError: no transduction has the name that the header states.
    """
    if prepared.kind != KIND:
        raise DataError(prepared.path, f"holds data of kind {prepared.kind!r}; transduction needs {KIND!r}")
    match prepared.header.extra:
        case {"transduction": str(name), "train_lengths": [int(low), int(high)]}:
            task = transduction(name)
        case _:
            reason = "expected its transduction, a name, and train_lengths, a minimum and a maximum"
            raise DataError(prepared.path / HEADER_NAME, reason)
    if prepared.vocabulary != vocabulary_of(task):
        raise DataError(prepared.path, f"its vocabulary is not that of the transduction {task.name!r} in this version")
    return TransductionData(task, prepared.vocabulary, (low, high), seed)


def stored_pairs(prepared: PreparedFolder, split: str) -> Iterator[tuple[int, Ids, Ids]]:
    """Yield the pairs of a split, grouped by length: the index of the first pair, x (N, n) and y (N, n')."""
    sequences = prepared.split(split)
    sizes = [_input_length(prepared, sequences[i]) for i in range(len(sequences))]
    for first, end in _runs(sizes):
        rows = np.stack([sequences[i] for i in range(first, end)]).astype(np.int64)
        yield first, *_split_pairs(rows, sizes[first])


def stored_pair(prepared: PreparedFolder, split: str, index: int, form: Form) -> Batch:
    """Return one pair of a split as a batch."""
    row = prepared.split(split)[index].astype(np.int64)
    return batch_of(*_split_pairs(row[None], _input_length(prepared, row)), prepared.vocabulary, form, index)


def _input_length(prepared: PreparedFolder, row: NDArray[Any]) -> int:
    """Return the number of symbols before the separator of a stored pair."""
    return int(np.flatnonzero(row == prepared.vocabulary.id_of[SEPARATOR])[0])


def _split_pairs(rows: Ids, length: int) -> tuple[Ids, Ids]:
    """Split stored pairs into x and y; all x have the same length."""
    return rows[:, :length], rows[:, length + 1 :]


def _runs(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run of equal sizes."""
    cuts = [i for i in range(1, len(sizes)) if sizes[i] != sizes[i - 1]]
    yield from zip([0, *cuts], [*cuts, len(sizes)], strict=True) if sizes else ()

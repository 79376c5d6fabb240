"""Answers of models of transductions, and their explanations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from structattn.decoding.batches import batches_of_one_length
from structattn.settings.embeddings import max_positions
from structattn.settings.transformer import reads_bos
from structattn.support.devices import device_of
from structattn.support.errors import DataError
from structattn.support.progress import Advance, show_nothing
from structattn.support.special_tokens import FIRST_SYMBOL, PAD, id_of
from structattn.tasks.language_modeling.predict import TextExplainer
from structattn.tasks.loaded import TARGETS, TEXTS, LoadedRun, Prediction
from structattn.tasks.losses import to_float32
from structattn.tasks.transductions.batches import (
    Ids,
    TransductionData,
    batch_of,
    form_of,
    stored_pair,
    transduction_data,
)
from structattn.tasks.transductions.evaluate import greedy_outputs
from structattn.tasks.transductions.transduction import Transduction
from structattn.text.batching.sequences import Batch
from structattn.text.lines import encoded


@dataclass(frozen=True)
class TransductionPredictor:
    """Predicts the outputs of a transduction, each symbol the most probable one.

    A model that predicts symbol by symbol is given its own symbols.
    """

    run: LoadedRun
    batch_size: int = 64

    def __call__(
        self, inputs: Sequence[str], first: int = 1, path: Path = TEXTS, advance: Advance = show_nothing
    ) -> list[Prediction]:
        """Return the answer to each input; see ``Predictor``."""
        rows = [_input(self.run, self._task, line, path, number) for number, line in enumerate(inputs, start=first)]
        answers: dict[int, Prediction] = {}
        for batch in batches_of_one_length([len(row) for row in rows], self.batch_size):
            answers |= zip(batch, self._predict(np.array([rows[index] for index in batch])), strict=True)
            advance(len(batch))
        return [answers[index] for index in range(len(rows))]

    @cached_property
    def _task(self) -> Transduction:
        return transduction_data(self.run.prepared, self.run.settings.seed).task

    @torch.no_grad()
    def _predict(self, x: Ids) -> list[Prediction]:
        model, vocabulary, form = self.run.accelerated, self.run.prepared.vocabulary, form_of(self.run.settings)
        y = np.full((len(x), self._task.output_length(x.shape[1])), FIRST_SYMBOL, dtype=np.int64)
        if form == "autoregressive":
            y = greedy_outputs(model, vocabulary, x, y.shape[1])
        inputs = batch_of(x, y, vocabulary, form).inputs.to(device_of(model))
        log_probs = to_float32(model(inputs)[:, -y.shape[1] :]).log_softmax(-1)
        if form == "autoregressive":
            best = log_probs.gather(2, torch.from_numpy(y - id_of(0)).to(log_probs.device)[:, :, None])[:, :, 0]
        else:
            best, classes = log_probs.max(-1)
            y = id_of(classes).cpu().numpy()
        texts = (" ".join(vocabulary.symbols[token] for token in row) for row in y.tolist())
        return [Prediction(text, total) for text, total in zip(texts, best.double().sum(1).tolist(), strict=True)]


@dataclass(frozen=True)
class TransductionExplainer(TextExplainer):
    """Explains a model of a transduction; see ``Explainer``. The targets of texts are answers."""

    has_targets: ClassVar[bool] = True

    @cached_property
    def _data(self) -> TransductionData:
        return transduction_data(self.run.prepared, self.run.settings.seed)

    @torch.no_grad()
    def text(self, text: str, target: str | None, number: int) -> Batch:
        """Return an input with its answer or, of an autoregressive model, the one that is found."""
        (task, vocabulary), form = (self._data.task, self._data.vocabulary), form_of(self.run.settings)
        x = np.array([_input(self.run, task, text, TEXTS, number)], dtype=np.int64)
        length = task.output_length(x.shape[1])
        if target is not None:
            y = np.array([_output(self.run, task, target, length, number)], dtype=np.int64)
        elif form == "autoregressive":
            y = greedy_outputs(self.run.model, vocabulary, x, length)
        else:
            y = np.full((1, length), FIRST_SYMBOL, dtype=np.int64)
        batch = batch_of(x, y, vocabulary, form, number - 1)
        known = target is not None or form == "autoregressive"
        return batch if known else replace(batch, targets=torch.full_like(batch.targets, PAD))

    def example(self, split: str, index: int) -> Batch:
        """Return a pair of a split."""
        return stored_pair(self.run.prepared, split, index, form_of(self.run.settings))


def _input(run: LoadedRun, task: Transduction, line: str, path: Path, number: int) -> list[int]:
    """Return the ids of an input for which the task has an answer, and the model positions."""
    ids = encoded(run.prepared.tokenizer, line, path, number)
    _require_symbols(run, task.inputs, f"an input of {task.name!r}", ids, path, number)
    if not task.valid_lengths(len(ids), len(ids)):
        raise DataError(path, f"{len(ids)} symbols: {task.name!r} has no inputs of that length", number)
    length = reads_bos(run.settings.model) + len(ids) + task.output_length(len(ids))
    maximum = max_positions(run.settings.model)
    if maximum is not None and length > maximum:
        raise DataError(path, f"input and output have {length} tokens; the model has {maximum} positions", number)
    return ids


def _output(run: LoadedRun, task: Transduction, line: str, length: int, number: int) -> list[int]:
    ids = encoded(run.prepared.tokenizer, line, TARGETS, number)
    _require_symbols(run, task.outputs, f"an output of {task.name!r}", ids, TARGETS, number)
    if len(ids) != length:
        raise DataError(TARGETS, f"{len(ids)} symbols; the answer of {task.name!r} has {length}", number)
    return ids


def _require_symbols(
    run: LoadedRun, alphabet: Sequence[str], what: str, ids: Sequence[int], path: Path, number: int
) -> None:
    for symbol in run.prepared.vocabulary.symbols_of(ids):
        if symbol not in alphabet:
            raise DataError(path, f"{symbol!r} is not {what}: {' '.join(alphabet)}", number)

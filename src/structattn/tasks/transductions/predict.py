"""Answers of models of transductions, and their explanations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from structattn.decoding import greedy_search, start_continuation
from structattn.decoding.batches import batches_of_one_length
from structattn.models.protocols import CausalModel
from structattn.settings.embeddings import max_positions
from structattn.support.devices import device_of
from structattn.support.errors import DataError
from structattn.support.progress import Advance, show_nothing
from structattn.support.special_tokens import EOS, FIRST_SYMBOL, PAD, id_of
from structattn.tasks.language_modeling.predict import TextExplainer
from structattn.tasks.loaded import TARGETS, TEXTS, LoadedRun, Prediction, require_positions
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
        rows = [self._encode(line, path, number) for number, line in enumerate(inputs, start=first)]
        answers: dict[int, Prediction] = {}
        for batch in batches_of_one_length([len(row) for row in rows], self.batch_size):
            answers |= zip(batch, self._predict(np.array([rows[index] for index in batch])), strict=True)
            advance(len(batch))
        return [answers[index] for index in range(len(rows))]

    @cached_property
    def _task(self) -> Transduction:
        return transduction_data(self.run.prepared, self.run.settings.seed).task

    def _encode(self, line: str, path: Path, number: int) -> list[int]:
        ids, task = encoded(self.run.prepared.tokenizer, line, path, number), self._task
        for token in ids:
            if token >= FIRST_SYMBOL + len(task.inputs):
                symbol = self.run.prepared.vocabulary.symbols[token]
                raise DataError(path, f"{symbol!r} is not an input of {task.name!r}: {' '.join(task.inputs)}", number)
        if not task.valid_lengths(len(ids), len(ids)):
            raise DataError(path, f"{len(ids)} symbols: {task.name!r} has no inputs of that length", number)
        length, maximum = 1 + len(ids) + task.output_length(len(ids)), max_positions(self.run.settings.model)
        if maximum is not None and length > maximum:
            raise DataError(path, f"input and output have {length} tokens; the model has {maximum} positions", number)
        return ids

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
        model, tokenizer, form = self.run.model, self.run.prepared.tokenizer, form_of(self.run.settings)
        x = np.array([encoded(tokenizer, text, TEXTS, number)], dtype=np.int64)
        if target is None:
            y = np.full((1, self._answer_length(x.shape[1], number)), EOS, dtype=np.int64)
        else:
            y = np.array([encoded(tokenizer, target, TARGETS, number)], dtype=np.int64)
        require_positions(self.run, 1 + x.shape[1] + y.shape[1], number)
        if target is None and form == "autoregressive":
            assert isinstance(model, CausalModel)
            prompt = batch_of(x, y[:, :1], self._data.vocabulary, form).inputs.to(device_of(model))
            (answer,) = greedy_search(model, start_continuation(model, prompt), y.shape[1])
            y = np.array([answer.tokens], dtype=np.int64)
        batch = batch_of(x, y, self._data.vocabulary, form, number - 1)
        known = target is not None or form == "autoregressive"
        return batch if known else replace(batch, targets=torch.full_like(batch.targets, PAD))

    def example(self, split: str, index: int) -> Batch:
        """Return a pair of a split."""
        return stored_pair(self.run.prepared, split, index, form_of(self.run.settings))

    def _answer_length(self, length: int, number: int) -> int:
        try:
            return self._data.task.output_length(length)
        except ValueError:
            name = self._data.task.name
            raise DataError(TEXTS, f"{length} symbols: {name!r} has no inputs of that length", number) from None

"""Answers of models of transductions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

import numpy as np
import torch

from structattn.settings.positions import max_positions
from structattn.support.errors import DataError
from structattn.support.special_tokens import FIRST_SYMBOL, id_of
from structattn.tasks.loaded import LoadedRun, Prediction
from structattn.tasks.losses import to_float32
from structattn.tasks.streams import TEXTS
from structattn.tasks.transductions.batches import Ids, batch_of, form_of, transduction_data
from structattn.tasks.transductions.scores import greedy_outputs
from structattn.tasks.transductions.transduction import Transduction
from structattn.text.lines import encoded


@dataclass(frozen=True)
class TransductionPredictor:
    """Predicts the outputs of a transduction, each symbol the most probable one.

    A model that predicts symbol by symbol is given its own symbols.

    Args:
        run: of a transduction.
        batch_size: the maximum number of inputs of a batch, which have equal lengths.
    """

    run: LoadedRun
    batch_size: int = 64

    def __call__(
        self,
        inputs: Sequence[str],
        first: int = 1,
        path: Path = TEXTS,
        advance: Callable[[int], object] = lambda count: None,
    ) -> list[Prediction]:
        """Return the answer to each input; see ``Predictor``."""
        rows = [self._encode(line, path, number) for number, line in enumerate(inputs, start=first)]
        answers: dict[int, Prediction] = {}
        for _, group in groupby(sorted(range(len(rows)), key=lambda index: len(rows[index])), lambda i: len(rows[i])):
            same = list(group)
            for start in range(0, len(same), self.batch_size):
                batch = same[start : start + self.batch_size]
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
        inputs = batch_of(x, y, vocabulary, form).inputs.to(next(model.parameters()).device)
        log_probs = to_float32(model(inputs)[:, -y.shape[1] :]).log_softmax(-1)
        if form == "autoregressive":
            best = log_probs.gather(2, torch.from_numpy(y - id_of(0)).to(log_probs.device)[:, :, None])[:, :, 0]
        else:
            best, classes = log_probs.max(-1)
            y = id_of(classes).cpu().numpy()
        texts = (" ".join(vocabulary.symbols[token] for token in row) for row in y.tolist())
        return [Prediction(text, total) for text, total in zip(texts, best.double().sum(1).tolist(), strict=True)]

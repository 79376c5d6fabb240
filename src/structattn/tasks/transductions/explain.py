"""What a model of a transduction does on single pairs."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch

from structattn.decoding import greedy_search, start_continuation
from structattn.models.protocols import CausalModel
from structattn.support.errors import DataError
from structattn.support.special_tokens import EOS, PAD
from structattn.tasks.language_modeling.explain import TextExplainer, device_of
from structattn.tasks.loaded import require_positions
from structattn.tasks.streams import TARGETS, TEXTS
from structattn.tasks.transductions.batches import TransductionData, batch_of, form_of, stored_pair, transduction_data
from structattn.text.batching.sequences import Batch
from structattn.text.lines import encoded


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

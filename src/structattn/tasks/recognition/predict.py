"""Answers of models that recognize a language, and their explanations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from structattn.decoding import map_in_batches
from structattn.support.devices import device_of
from structattn.support.progress import Advance, show_nothing
from structattn.support.shapes import Float
from structattn.tasks.language_modeling.predict import TextExplainer
from structattn.tasks.loaded import TEXTS, LoadedRun, Prediction, require_positions
from structattn.tasks.recognition.losses import label_logits, recognition_logits
from structattn.text.batching.sequences import Batch, make_batch
from structattn.text.lines import encoded

ACCEPT, REJECT = "accept", "reject"
_MAX_TOKENS = 8192  # of a batch


@dataclass(frozen=True)
class RecognitionPredictor:
    """Answers whether strings are members: ``accept`` or ``reject``.

    Symbols are separated by spaces, unless all symbols of the language are single characters.
    """

    run: LoadedRun
    batch_size: int = 64

    def __call__(
        self, inputs: Sequence[str], first: int = 1, path: Path = TEXTS, advance: Advance = show_nothing
    ) -> list[Prediction]:
        """Return the answer to each input with its log-probability; see ``Predictor``."""
        tokenizer, rows = self.run.prepared.tokenizer, []
        for number, line in enumerate(inputs, start=first):
            ids = encoded(tokenizer, line, path, number)
            require_positions(self.run, 1 + len(ids), number, path)
            rows.append(np.array(ids, dtype=np.int64))

        def predict(batch: list[np.ndarray]) -> list[Prediction]:
            answers = self._predict(batch)
            advance(len(batch))
            return answers

        return map_in_batches(rows, [1 + len(row) for row in rows], _MAX_TOKENS, predict, self.batch_size)

    @torch.no_grad()
    def _predict(self, rows: list[np.ndarray]) -> list[Prediction]:
        model = self.run.accelerated
        batch = make_batch(rows, range(len(rows))).to(device_of(model))
        logits = label_logits(recognition_logits(model, batch.inputs, batch.lengths), batch.lengths).double()
        log_probs = F.logsigmoid(logits.abs()).tolist()
        answers = (ACCEPT if logit >= 0 else REJECT for logit in logits.tolist())
        return [Prediction(answer, each) for answer, each in zip(answers, log_probs, strict=True)]


@dataclass(frozen=True)
class RecognitionExplainer(TextExplainer):
    """Explains a model that recognizes a language; see ``Explainer``. Nothing is predicted but the label."""

    def surprisal(self, batch: Batch) -> tuple[Float[np.ndarray, " time"], Float[np.ndarray, " time"]]:
        """Return <pad> for each position: no token is predicted."""
        (length,) = batch.lengths.tolist()
        return np.zeros(length, dtype=np.int64), np.zeros(length)

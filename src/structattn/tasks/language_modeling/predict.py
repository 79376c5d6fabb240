"""Log-probabilities and explanations of texts under language models."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from structattn.decoding import map_in_batches
from structattn.settings.training import StreamBatches
from structattn.support.devices import device_of
from structattn.support.progress import Advance, show_nothing
from structattn.support.shapes import Float
from structattn.support.special_tokens import BOS, EOS
from structattn.tasks.language_modeling.evaluate import max_batch_tokens
from structattn.tasks.language_modeling.prompts import EncodedText, TextEncoder
from structattn.tasks.loaded import TEXTS, ExplainedLayer, LoadedRun, require_positions
from structattn.tasks.losses import model_inputs, token_losses
from structattn.tasks.scores import Score, score_of
from structattn.text.batching.sequences import Batch, make_batch, make_stream_batch
from structattn.text.lines import ids_of_lines, is_stream, warn_of_unknown_tokens


@dataclass(frozen=True)
class CausalTextScorer:
    """log p(text <eos>): the sum over tokens given those before them."""

    encoder: TextEncoder
    per_token: bool = False
    batch_size: int = 64

    @torch.no_grad()
    def __call__(
        self, texts: Sequence[str], first: int = 1, path: Path = TEXTS, advance: Advance = show_nothing
    ) -> list[Score]:
        """Return the score of each text.

        Args:
            texts: lines; several lines each, if the model was trained on a stream.
            first: the number of the first text, for messages.
            path: of the texts, for messages.
            advance: called with the number of texts that have been scored since.

        Raises:
            DataError: a text cannot be encoded, or is too long for the model.
        """
        tokenizer = self.encoder.run.prepared.tokenizer
        encoded = [self.encoder.encode(text, path, number) for number, text in enumerate(texts, start=first)]
        warn_of_unknown_tokens(tokenizer, texts, [each[1:] for each in encoded], path, count(first))

        def score(batch: list[EncodedText]) -> list[Score]:
            rows = [np.array(each[1:], dtype=np.int64) for each in batch]
            start = batch[0][0]
            inputs, lengths, classes = model_inputs(self._model, make_batch(rows, np.arange(len(rows)), start))
            losses = token_losses(self._model(inputs, lengths=lengths), classes).double().tolist()
            advance(len(batch))
            return [
                score_of(tokenizer.vocabulary.symbols, ids, [-loss for loss in row[: len(ids)]], self.per_token)
                for ids, row in (((*each[1:], EOS), row) for each, row in zip(batch, losses, strict=True))
            ]

        max_tokens = max_batch_tokens(tokenizer.vocabulary.size)
        return map_in_batches(encoded, [len(each) for each in encoded], max_tokens, score, self.batch_size)

    @property
    def _model(self) -> torch.nn.Module:
        return self.encoder.run.accelerated


def make_text_scorer(run: LoadedRun, per_token: bool, batch_size: int) -> CausalTextScorer:
    """Return a scorer of texts with the model of a run.

    Raises:
        UsageError: the run is of another kind.
    """
    return CausalTextScorer(TextEncoder(run), per_token, batch_size)


@dataclass(frozen=True)
class TextExplainer:
    """Explains a model of sequences; see ``Explainer``."""

    run: LoadedRun
    has_targets: ClassVar[bool] = False

    def text(self, text: str, target: str | None, number: int) -> Batch:
        """Return a text with inputs ``<bos> text``, or ``<eos> line 1 <eos> line 2 ...`` in a stream."""
        settings = self.run.settings
        lines = ids_of_lines(self.run.prepared.tokenizer, settings, text, TEXTS, number)
        ids = [token for line in lines for token in (EOS if is_stream(settings) else BOS, *line)]
        return self.batch(ids, [*ids[1:], EOS], number)

    def batch(self, ids: list[int], targets: list[int], number: int) -> Batch:
        """Return the inputs and targets of a text as a batch."""
        require_positions(self.run, len(ids), number)
        return Batch(torch.tensor([ids]), torch.tensor([targets]), torch.tensor([len(ids)]), (number - 1,))

    def example(self, split: str, index: int) -> Batch:
        """Return a sequence of a split, or a window of a stream."""
        sequences, batches = self.run.prepared.split(split), self.run.settings.training.batches
        if isinstance(batches, StreamBatches):
            return make_stream_batch(sequences, [index], batches.sequence_length)
        return make_batch(sequences, [index])

    @torch.no_grad()
    def layers(self, batch: Batch) -> list[ExplainedLayer]:
        """Return the explanations of all layers."""
        model: Any = self.run.model
        symbols = self.run.prepared.vocabulary.symbols
        tokens = tuple(symbols[token] for token in batch.inputs[0].tolist())
        return [ExplainedLayer(each, tokens) for each in model.explain(batch.inputs.to(device_of(model)))]

    @torch.no_grad()
    def surprisal(self, batch: Batch) -> tuple[Float[np.ndarray, " time"], Float[np.ndarray, " time"]]:
        """Return the targets and -log p of each, given the tokens up to its position."""
        inputs, lengths, classes = model_inputs(self.run.model, batch)
        losses = token_losses(self.run.model(inputs, lengths=lengths), classes)[0].double().cpu().numpy()
        return batch.targets[0].numpy(), losses

"""Log-probabilities of texts under language models, and pseudo-log-probabilities under masked ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from structattn.decoding import map_in_batches
from structattn.settings.model import reads_bos
from structattn.settings.positions import max_positions
from structattn.settings.tasks import MASKED_LANGUAGE_MODELING
from structattn.support.errors import DataError
from structattn.support.special_tokens import EOS
from structattn.tasks.language_modeling.prompts import EncodedText, TextEncoder
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.losses import model_inputs, token_losses
from structattn.tasks.masked.scores import pseudo_log_likelihoods
from structattn.tasks.scores import Score, score_of
from structattn.tasks.streams import TEXTS
from structattn.text.batching.sequences import make_batch
from structattn.text.lines import ids_of_lines, warn_of_unknown_tokens

_MAX_LOGITS = 1 << 24  # 64 MiB in float32


class TextScorer(Protocol):
    """Scores texts independently of each other."""

    def __call__(
        self,
        texts: Sequence[str],
        first: int = 1,
        path: Path = TEXTS,
        advance: Callable[[int], object] = lambda count: None,
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


def make_text_scorer(run: LoadedRun, per_token: bool = False, batch_size: int = 64) -> TextScorer:
    """Return a scorer of texts for a run.

    Args:
        run: of a language model, masked or not.
        per_token: whether to return the scores of the tokens.
        batch_size: the maximum number of texts of a batch, or of masked copies of a text; affects speed and memory
            only.

    Raises:
        UsageError: the run is of another kind.
    """
    if run.settings.task == MASKED_LANGUAGE_MODELING:
        return MaskedTextScorer(run, per_token, batch_size)
    return CausalTextScorer(TextEncoder(run), per_token, batch_size)


@dataclass(frozen=True)
class CausalTextScorer:
    """log p(text <eos>): the sum over tokens given those before them.

    Args:
        encoder: of the run.
        per_token: whether to return the scores of the tokens.
        batch_size: the maximum number of texts of a batch.
    """

    encoder: TextEncoder
    per_token: bool = False
    batch_size: int = 64

    @torch.no_grad()
    def __call__(
        self,
        texts: Sequence[str],
        first: int = 1,
        path: Path = TEXTS,
        advance: Callable[[int], object] = lambda count: None,
    ) -> list[Score]:
        """Return the score of each text; see ``TextScorer``."""
        vocabulary = self.encoder.run.prepared.vocabulary
        encoded = [self.encoder.encode(text, path, number) for number, text in enumerate(texts, start=first)]
        warn_of_unknown_tokens(vocabulary, texts, [each.ids[1:] for each in encoded], path, first)

        def score(batch: list[EncodedText]) -> list[Score]:
            rows = [np.array(each.ids[1:], dtype=np.int64) for each in batch]
            start = batch[0].ids[0]
            inputs, lengths, classes = model_inputs(self._model, make_batch(rows, np.arange(len(rows)), start))
            losses = token_losses(self._model(inputs, lengths=lengths), classes).double().tolist()
            advance(len(batch))
            return [
                score_of(vocabulary.symbols, ids, [-loss for loss in row[: len(ids)]], self.per_token)
                for ids, row in (((*each.ids[1:], EOS), row) for each, row in zip(batch, losses, strict=True))
            ]

        max_tokens = max(1, _MAX_LOGITS // vocabulary.size)
        return map_in_batches(encoded, [len(each.ids) for each in encoded], max_tokens, score, self.batch_size)

    @property
    def _model(self) -> torch.nn.Module:
        return self.encoder.run.accelerated


@dataclass(frozen=True)
class MaskedTextScorer:
    """The sum of log p(token | all other tokens) over the tokens of a text (Salazar et al. 2020), without <eos>.

    Args:
        run: of a masked language model.
        per_token: whether to return the scores of the tokens.
        batch_size: the maximum number of masked copies of a text in a batch.
    """

    run: LoadedRun
    per_token: bool = False
    batch_size: int = 64

    def __call__(
        self,
        texts: Sequence[str],
        first: int = 1,
        path: Path = TEXTS,
        advance: Callable[[int], object] = lambda count: None,
    ) -> list[Score]:
        """Return the score of each text; see ``TextScorer``. Cost: a pass over a text for each of its tokens."""
        found = []
        encoded = [self._encode(text, path, number) for number, text in enumerate(texts, start=first)]
        warn_of_unknown_tokens(self.run.prepared.vocabulary, texts, [each.tolist() for each in encoded], path, first)
        for tokens in encoded:
            found.append(self._score(tokens))
            advance(1)
        return found

    def _encode(self, text: str, path: Path, number: int) -> np.ndarray:
        settings = self.run.settings
        lines = ids_of_lines(self.run.prepared.tokenizer, settings, text, path, number)
        tokens = np.array([token for line in lines for token in (*line, EOS)], dtype=np.int64)
        length, maximum = len(tokens) + reads_bos(settings.model), max_positions(settings.model)
        if maximum is not None and length > maximum:
            reason = f"the inputs have {length} tokens; the model has {maximum} positions"
            raise DataError(path, reason, number)
        return tokens

    def _score(self, tokens: np.ndarray) -> Score:
        vocabulary, bos = self.run.prepared.vocabulary, reads_bos(self.run.settings.model)
        found = pseudo_log_likelihoods(self.run.accelerated, tokens, vocabulary.size, bos, self.batch_size)
        return score_of(vocabulary.symbols, tokens[tokens != EOS].tolist(), found.tolist(), self.per_token)

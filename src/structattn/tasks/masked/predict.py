"""Pseudo-log-probabilities of texts under masked language models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from structattn.settings.model import reads_bos
from structattn.settings.positions import max_positions
from structattn.support.errors import DataError
from structattn.support.special_tokens import EOS
from structattn.tasks.loaded import LoadedRun
from structattn.tasks.masked.scores import pseudo_log_likelihoods
from structattn.tasks.scores import Score, score_of
from structattn.tasks.streams import TEXTS
from structattn.text.lines import ids_of_lines, warn_of_unknown_tokens


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
        """Return the score of each text; see ``CausalTextScorer``. Cost: a pass over a text for each of its tokens."""
        scores = []
        encoded = [self._encode(text, path, number) for number, text in enumerate(texts, start=first)]
        warn_of_unknown_tokens(self.run.prepared.vocabulary, texts, [each.tolist() for each in encoded], path, first)
        for tokens in encoded:
            scores.append(self._score(tokens))
            advance(1)
        return scores

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
        log_probs = pseudo_log_likelihoods(self.run.accelerated, tokens, vocabulary.size, bos, self.batch_size)
        return score_of(vocabulary.symbols, tokens[tokens != EOS].tolist(), log_probs.tolist(), self.per_token)

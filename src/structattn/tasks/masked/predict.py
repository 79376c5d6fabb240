"""Pseudo-log-probabilities and explanations of texts under masked language models."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from structattn.settings.transformer import reads_bos
from structattn.support.progress import Advance, show_nothing
from structattn.support.shapes import Float
from structattn.support.special_tokens import BOS, EOS, PAD
from structattn.tasks.language_modeling.predict import TextExplainer
from structattn.tasks.loaded import TEXTS, LoadedRun, require_positions
from structattn.tasks.masked.batches import masked_examples
from structattn.tasks.masked.evaluate import pseudo_log_likelihoods
from structattn.tasks.scores import Score, score_of
from structattn.text.batching.sequences import Batch
from structattn.text.lines import ids_of_lines, warn_of_unknown_tokens


@dataclass(frozen=True)
class MaskedTextScorer:
    """The sum of log p(token | all other tokens) over the tokens of a text (Salazar et al. 2020), without <eos>."""

    run: LoadedRun
    per_token: bool = False
    batch_size: int = 64

    def __call__(
        self, texts: Sequence[str], first: int = 1, path: Path = TEXTS, advance: Advance = show_nothing
    ) -> list[Score]:
        """Return the score of each text; see ``CausalTextScorer``. Cost: a pass over a text for each of its tokens."""
        scores = []
        encoded = [self._encode(text, path, number) for number, text in enumerate(texts, start=first)]
        warn_of_unknown_tokens(
            self.run.prepared.tokenizer, texts, [each.tolist() for each in encoded], path, count(first)
        )
        for tokens in encoded:
            scores.append(self._score(tokens))
            advance(1)
        return scores

    def _encode(self, text: str, path: Path, number: int) -> np.ndarray:
        settings = self.run.settings
        lines = ids_of_lines(self.run.prepared.tokenizer, settings, text, path, number)
        tokens = np.array([token for line in lines for token in (*line, EOS)], dtype=np.int64)
        require_positions(self.run, len(tokens) + reads_bos(settings.model), number, path)
        return tokens

    def _score(self, tokens: np.ndarray) -> Score:
        vocabulary, bos = self.run.prepared.vocabulary, reads_bos(self.run.settings.model)
        log_probs = pseudo_log_likelihoods(self.run.accelerated, tokens, vocabulary.size, bos, self.batch_size)
        return score_of(vocabulary.symbols, tokens[tokens != EOS].tolist(), log_probs.tolist(), self.per_token)


_ROWS = 64  # masked copies of a text in one pass


@dataclass(frozen=True)
class MaskedExplainer(TextExplainer):
    """Explains a masked language model on texts without masks; see ``Explainer``."""

    def text(self, text: str, target: str | None, number: int) -> Batch:
        """Return ``<bos> line 1 <eos> line 2 <eos> ...``, without ``<bos>`` if so trained; nothing is predicted."""
        settings = self.run.settings
        lines = ids_of_lines(self.run.prepared.tokenizer, settings, text, TEXTS, number)
        ids = [BOS] * reads_bos(settings.model) + [token for line in lines for token in (*line, EOS)]
        return self.batch(ids, [PAD] * len(ids), number)

    def example(self, split: str, index: int) -> Batch:
        """Return an example of a split without masks."""
        return masked_examples(self.run.prepared, split, self.run.settings, 0).uncorrupted(np.array([index]))

    def surprisal(self, batch: Batch) -> tuple[Float[np.ndarray, " time"], Float[np.ndarray, " time"]]:
        """Return the tokens but ``<bos>`` and ``<eos>``, and -log p of each given all others.

        Cost: as many forward passes of the text as it has tokens.
        """
        bos = reads_bos(self.run.settings.model)
        tokens = batch.inputs[0].numpy()
        targets = np.where(tokens == EOS, PAD, tokens)
        targets[: int(bos)] = PAD
        losses = np.full(len(targets), np.nan)
        mask = self.run.prepared.vocabulary.size
        losses[targets != PAD] = -pseudo_log_likelihoods(self.run.model, tokens[int(bos) :], mask, bos, _ROWS)
        return targets, losses

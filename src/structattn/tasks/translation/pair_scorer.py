"""Log-probabilities of given translations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from structattn.decoding import Ensemble, map_in_batches
from structattn.models import EncoderDecoder
from structattn.support.errors import UsageError
from structattn.support.special_tokens import EOS
from structattn.tasks.scores import Score, score_of
from structattn.tasks.translation.pairs import EncodedPair, PairEncoder
from structattn.tasks.translation.predictions import Predictions, predictions
from structattn.text.batching.pairs import PairBatch
from structattn.text.folders.parallel_side import ParallelSides

SOURCES, TRANSLATIONS = Path("sources"), Path("translations")  # in messages, in place of the paths of files


@dataclass(frozen=True)
class PairScorer:
    """Computes log p(translation | source) for each pair independently.

    Args:
        models: in evaluation mode; several form an ensemble that averages probabilities. Words predicted as <unk> are
            spelled if all models have a spelling decoder; otherwise ``<unk>`` is scored as a token.
        sides: normalization and tokenizers of both languages.
        batch_tokens: the maximum padded size of a batch. Memory is for about batch_tokens * classes numbers for each
            model, three times as many for an ensemble.
        batch_size: the maximum number of pairs of a batch; None: any.
        per_token: whether to return the scores of the tokens.
    """

    models: tuple[EncoderDecoder, ...]
    sides: ParallelSides
    batch_tokens: int = 4096
    batch_size: int | None = None
    per_token: bool = False

    @cached_property
    def _encoder(self) -> PairEncoder:
        return PairEncoder(self.models, self.sides)

    def encode(self, source: str, target: str, paths: tuple[Path, Path], number: int) -> EncodedPair:
        """Normalize and encode a pair; see ``PairEncoder``."""
        return self._encoder(source, target, paths, number)

    def score_texts(self, pairs: Sequence[tuple[str, str]], first: int = 1) -> list[Score]:
        """Encode and score pairs of a source line and its translation; ``first`` is the number of the first pair.

        Raises:
            DataError: a line cannot be encoded, or is too long for a model.
            UsageError: what is given is not a pair.
        """
        for pair in pairs:
            if isinstance(pair, str) or len(pair) != 2:
                raise UsageError(f"got {pair!r:.60}; expected pairs of a source line and its translation")
        return self([self.encode(*pair, (SOURCES, TRANSLATIONS), number) for number, pair in enumerate(pairs, first)])

    def __call__(
        self, pairs: Sequence[EncodedPair], advance: Callable[[int], object] = lambda count: None
    ) -> list[Score]:
        """Return the score of each pair; ``advance`` is called with the number of pairs that have been scored since."""
        symbols = self.sides.target.vocabulary.symbols

        def score(pairs: list[EncodedPair]) -> list[Score]:
            losses = self._predictions(self._encoder.batch(pairs)).token_losses().tolist()
            advance(len(pairs))
            targets = [(*pair.target, EOS) for pair in pairs]
            return [
                score_of(symbols, ids, [-loss for loss in row[: len(ids)]], self.per_token)
                for ids, row in zip(targets, losses, strict=True)
            ]

        lengths = [max(len(pair.source), len(pair.target)) + 1 for pair in pairs]
        return map_in_batches(pairs, lengths, self.batch_tokens, score, self.batch_size)

    @torch.no_grad()
    def _predictions(self, batch: PairBatch) -> Predictions:
        found = [predictions(model, batch) for model in self.models]
        if len(found) == 1:
            return found[0]
        mean = Ensemble(self.models).mean
        words = Predictions(mean([each.logits for each in found]), found[0].classes)
        characters = [each.character_logits for each in found if each.character_logits is not None]
        if len(characters) < len(found):
            return words
        return replace(found[0], logits=words.logits, character_logits=mean(characters))

"""Log-probabilities of given translations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from structattn.data.batching.pairs import PairBatch
from structattn.data.folders.parallel_side import ParallelSides
from structattn.decoding import Ensemble, map_in_batches
from structattn.inference.pairs import EncodedPair, PairEncoder
from structattn.models import EncoderDecoder
from structattn.tasks.translation.predictions import Predictions, predictions


@dataclass(frozen=True)
class PairScore:
    """Score of a translation given its source.

    Args:
        log_probability: of its tokens, <eos> included, and of the spellings of those that are spelled; in nats.
        num_tokens: the number of tokens, <eos> included; characters of spellings are not counted.
    """

    log_probability: float
    num_tokens: int


@dataclass(frozen=True)
class PairScorer:
    """Computes log p(translation | source) for each pair independently.

    Args:
        models: in evaluation mode; several form an ensemble that averages probabilities. Words predicted as <unk> are
            spelled if all models have a spelling decoder; otherwise ``<unk>`` is scored as a token.
        sides: normalization and tokenizers of both languages.
        batch_tokens: the maximum padded size of a batch. Memory is for about batch_tokens * classes numbers for each
            model, three times as many for an ensemble.
    """

    models: tuple[EncoderDecoder, ...]
    sides: ParallelSides
    batch_tokens: int = 4096

    @cached_property
    def _encoder(self) -> PairEncoder:
        return PairEncoder(self.models, self.sides)

    def encode(self, source: str, target: str, paths: tuple[Path, Path], number: int) -> EncodedPair:
        """Normalize and encode a pair; see ``PairEncoder``."""
        return self._encoder(source, target, paths, number)

    def __call__(
        self, pairs: Sequence[EncodedPair], advance: Callable[[int], object] = lambda count: None
    ) -> list[PairScore]:
        """Return the score of each pair; ``advance`` is called with the number of pairs that have been scored since."""

        def score(pairs: list[EncodedPair]) -> list[PairScore]:
            batch = self._encoder.batch(pairs)
            losses = self._predictions(batch).row_losses().tolist()
            advance(len(pairs))
            return [PairScore(-loss, length) for loss, length in zip(losses, batch.lengths.tolist(), strict=True)]

        lengths = [max(len(pair.source), len(pair.target)) + 1 for pair in pairs]
        return map_in_batches(pairs, lengths, self.batch_tokens, score)

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

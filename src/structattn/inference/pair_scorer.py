"""How likely given translations are."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from structattn.data.batching.pairs import PairBatch, make_pair_batch
from structattn.data.batching.spelled_words import spelt_lines
from structattn.data.parallel.parallel_side import Side, Sides
from structattn.data.tokenization.tokenizers import TextError, split_line
from structattn.decoding import Ensemble, map_in_batches
from structattn.models import EncoderDecoder
from structattn.support.errors import DataError
from structattn.tasks.translation.predictions import Predictions, predictions


@dataclass(frozen=True)
class CodedPair:
    """A source and a translation of it as ids, and as words where words without a number have spellings."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    words: tuple[tuple[str, ...], tuple[str, ...]] | None


@dataclass(frozen=True)
class PairScore:
    """How likely a translation is, given its source.

    Args:
        nats: -log p of its tokens, <eos> counted, and of the spellings of those that are spelt.
        tokens: how many there are, <eos> counted; characters of spellings are none.
    """

    nats: float
    tokens: int


@dataclass(frozen=True)
class PairScorer:
    """-log p(translation | source), each pair's by itself.

    Args:
        models: in evaluation mode; several predict as one, by the mean of their probabilities. Words are spelt where
            all of them spell; else ``<unk>`` is a word like others.
        sides: how lines become ids.
        batch_tokens: the largest padded size of a batch. Memory is for some batch_tokens * classes numbers of each
            model, three times as many where there are several.
    """

    models: tuple[EncoderDecoder, ...]
    sides: Sides
    batch_tokens: int = 4096

    def coded(self, source: str, target: str, places: tuple[Path, Path], line: int) -> CodedPair:
        """The pair as the models read it.

        Args:
            source: the line in the source language.
            target: its translation.
            places: where the two stand, for messages.
            line: the number of the line there.

        Raises:
            DataError: a line has no encoding, or is too long for a model.
        """
        source, target = self.sides.source.normalization(source), self.sides.target.normalization(target)
        of_source = ids_of(self.sides.source, source, least(m.longest_source for m in self.models), places[0], line)
        of_target = ids_of(self.sides.target, target, least(m.longest_target for m in self.models), places[1], line)
        words = None
        if self.sides.target.speller is not None:
            words = tuple(split_line("word", source)), tuple(split_line("word", target))
        return CodedPair(tuple(of_source), tuple(of_target), words)

    def __call__(
        self, pairs: Sequence[CodedPair], advance: Callable[[int], object] = lambda count: None
    ) -> list[PairScore]:
        """The score of each; ``advance`` is told how many more are done."""

        def scored(batch: list[CodedPair]) -> list[PairScore]:
            made = _batch(self.sides, batch)
            nats = self._predictions(made).row_losses().tolist()
            advance(len(batch))
            return [PairScore(*each) for each in zip(nats, made.lengths.tolist(), strict=True)]

        lengths = [max(len(pair.source), len(pair.target)) + 1 for pair in pairs]
        return map_in_batches(pairs, lengths, self.batch_tokens, scored)

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


def least(numbers: Iterable[int | None]) -> int | None:
    """The least of several limits; None where there is none."""
    return min((number for number in numbers if number is not None), default=None)


def ids_of(side: Side, text: str, longest: int | None, place: Path, line: int) -> list[int]:
    """The ids of a line that is normalised already.

    Raises:
        DataError: it has no encoding, or with <eos> more tokens than ``longest``.
    """
    try:
        ids = side.tokenizer.encode(text)
    except TextError as error:
        raise DataError(place, f"{text!r:.60}: {error.reason}", line) from None
    if longest is not None and len(ids) >= longest:
        raise DataError(place, f"{len(ids)} tokens and <eos> in a line; the model reads {longest}", line)
    return ids


def _batch(sides: Sides, pairs: list[CodedPair]) -> PairBatch:
    batch = make_pair_batch([(np.array(pair.source), np.array(pair.target)) for pair in pairs], range(len(pairs)))
    if sides.source.speller is None or sides.target.speller is None:
        return batch
    words = [pair.words or ((), ()) for pair in pairs]
    sources, targets = [its[0] for its in words], [its[1] for its in words]
    return replace(
        batch,
        source_words=spelt_lines(sources, [p.source for p in pairs], batch.source.shape[1], sides.source.speller),
        target_words=spelt_lines(targets, [p.target for p in pairs], batch.targets.shape[1], sides.target.speller),
    )

"""Encoding of source and target lines for translation models."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from structattn.models import EncoderDecoder, SpelledEmbedding
from structattn.support.errors import DataError
from structattn.text.batching.corruption import unknown_words_of_lines
from structattn.text.batching.pairs import PairBatch, make_pair_batch
from structattn.text.folders.parallel import ParallelSides, SideName
from structattn.text.folders.text_tokenizer import TextTokenizer
from structattn.text.lines import encoded, warn_of_unknown_tokens
from structattn.text.tokenization.tokenizers import split_line


@dataclass(frozen=True)
class EncodedPair:
    """A source and its translation as ids, and as words where out-of-vocabulary words have spellings."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    words: tuple[tuple[str, ...], tuple[str, ...]] | None


@dataclass(frozen=True)
class PairEncoder:
    """Encodes lines for one or several translation models."""

    models: tuple[EncoderDecoder, ...]
    sides: ParallelSides

    @property
    def max_source_length(self) -> int | None:
        """The maximum number of source tokens, <eos> included; None: unbounded."""
        return min((m.max_source_positions for m in self.models if m.max_source_positions is not None), default=None)

    @property
    def max_target_length(self) -> int | None:
        """The maximum number of target tokens, <eos> included; None: unbounded."""
        return min((m.max_target_positions for m in self.models if m.max_target_positions is not None), default=None)

    def source_ids(self, line: str, path: Path, number: int) -> list[int]:
        """Return the ids of a normalized source line, without <eos>.

        Raises:
            DataError: the line cannot be encoded, or is too long for a model.
        """
        return _ids(self.sides.source, line, self.max_source_length, path, number)

    def target_ids(self, line: str, path: Path, number: int) -> list[int]:
        """Return the ids of a normalized target line, without <eos>; see ``source_ids``."""
        return _ids(self.sides.target, line, self.max_target_length, path, number)

    def __call__(self, source: str, target: str, paths: tuple[Path, Path], number: int) -> EncodedPair:
        """Normalize and encode a pair.

        Raises:
            DataError: a line cannot be encoded, or is too long for a model.
        """
        source, target = self.sides.source.normalized(source), self.sides.target.normalized(target)
        ids = self.source_ids(source, paths[0], number), self.target_ids(target, paths[1], number)
        words = None
        if self.sides.target.character_tokenizer is not None:
            words = tuple(split_line("word", source)), tuple(split_line("word", target))
        return EncodedPair(tuple(ids[0]), tuple(ids[1]), words)

    def warn_of_unknown(
        self, side: SideName, lines: Sequence[str], ids: Sequence[Sequence[int]], path: Path, numbers: Iterable[int]
    ) -> None:
        """Log how many tokens of a side are read as <unk>, unless the models spell these words."""
        spells = [
            isinstance(model.source, SpelledEmbedding) if side == "source" else model.spelling is not None
            for model in self.models
        ]
        if not all(spells):
            warn_of_unknown_tokens(getattr(self.sides, side), lines, ids, path, numbers)

    def batch(self, pairs: Sequence[EncodedPair]) -> PairBatch:
        """Return pairs as a batch, with the spellings of out-of-vocabulary words where both sides have them."""
        arrays = [(np.array(pair.source), np.array(pair.target)) for pair in pairs]
        batch = make_pair_batch(arrays, range(len(pairs)))
        source, target = self.sides.source.character_tokenizer, self.sides.target.character_tokenizer
        if source is None or target is None:
            return batch
        words = [pair.words or ((), ()) for pair in pairs]
        unknown_source_words, unknown_target_words = [each[0] for each in words], [each[1] for each in words]
        return replace(
            batch,
            unknown_source_words=unknown_words_of_lines(
                unknown_source_words, [p.source for p in pairs], batch.source.shape[1], source
            ),
            unknown_target_words=unknown_words_of_lines(
                unknown_target_words, [p.target for p in pairs], batch.targets.shape[1], target
            ),
        )


def _ids(side: TextTokenizer, line: str, maximum: int | None, path: Path, number: int) -> list[int]:
    ids = encoded(side.tokenizer, line, path, number)
    if maximum is not None and len(ids) >= maximum:
        raise DataError(path, f"the line has {len(ids)} tokens and <eos>; the model has {maximum} positions", number)
    return ids

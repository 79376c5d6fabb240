"""A split of parallel text during preparation; it is read twice, with the same result."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from structattn.support.errors import DataError
from structattn.support.processes import WorkerPool
from structattn.support.progress import Advance
from structattn.support.special_tokens import UNK
from structattn.tasks.translation.filters import Pair, PairCounts, SelectionRules, filter_pairs, sample_pairs
from structattn.tasks.translation.reading import PairFiles
from structattn.text.folders.parallel import ParallelSides, RareWordCollector
from structattn.text.folders.text_tokenizer import SUBWORD_LEVELS
from structattn.text.reading import Notices
from structattn.text.tokenization.encoding import BulkEncoder, EncodedLines, num_unknown
from structattn.text.tokenization.splitting import SplitText, split_text
from structattn.text.tokenization.subword_training import SymbolCounts
from structattn.text.tokenization.tokenizers import locate_errors, split_line
from structattn.text.tokenization.vocabulary import CONTROL_SYMBOLS

_CONTROLS = frozenset(CONTROL_SYMBOLS)
_BATCH = 2000  # pairs
_SILENT = Notices(log=False)  # for every pass but the first, which has collected all notices


class EncodedPairs(NamedTuple):
    """The ids of consecutive pairs with their line numbers, normalized lines, and the indices of rare words if stored.

    Args:
        texts: the source and target lines, each followed by a line feed.
        rare: for each side, the index of the word of each ``<unk>``.
    """

    numbers: list[int]
    sides: tuple[EncodedLines, EncodedLines]
    texts: tuple[str, str]
    rare: tuple[list[int], list[int]] | None = None


@dataclass
class Split:
    """A split, and what is counted of source and target while it is read: kept words, tokens and ``<unk>``."""

    name: str
    files: PairFiles
    rules: SelectionRules
    counts: PairCounts = field(default_factory=PairCounts)
    kept_words: list[int] = field(default_factory=lambda: [0, 0])
    num_tokens: list[int] = field(default_factory=lambda: [0, 0])
    num_unknown: list[int] = field(default_factory=lambda: [0, 0])

    def survey(
        self,
        level: str,
        symbol_counts: tuple[SymbolCounts, SymbolCounts] | None,
        notices: Notices,
        pool: WorkerPool,
        advance: Advance,
    ) -> None:
        """Check and count every pair, and the symbols of each side if ``symbol_counts`` are given.

        Raises:
            DataError: a file is refused, or no pair is left.
        """
        if self._samples:
            unsampled = PairCounts()
            for _ in filter_pairs(self.files, self.rules, unsampled, notices):
                pass
            self._total = unsampled.kept
        for pairs, (texts, split) in self._split_pairs(level, self.counts, notices, pool):
            if level == "word" and not all(_CONTROLS.isdisjoint(side.symbols) for side in split):
                _refuse_control_symbol(pairs)
            for side, counts in zip(split, symbol_counts or (), strict=False):
                counts.add(side.symbols, side.counts())
            for index, text in enumerate(texts):
                self.kept_words[index] += text.count(" ") + len(pairs)  # single spaces separate words
            advance(len(pairs))
        self._check_not_empty()
        if self.counts.dropped:
            dropped = f"{self.counts.dropped.total()} of {self.counts.lines} pairs of {self.name} are dropped"
            notices.add(f"{self.files.shown}: {dropped}: {self.counts.describe_dropped()}")

    def encode(
        self, sides: ParallelSides, rare: Sequence[RareWordCollector] | None, pool: WorkerPool, advance: Advance
    ) -> Iterator[EncodedPairs]:
        """Read the split again and encode it."""
        tokenizers = sides.source.tokenizer, sides.target.tokenizer
        encoders = [BulkEncoder(tokenizer) for tokenizer in tokenizers]
        for pairs, (texts, split) in self._split_pairs(sides.level, PairCounts(), _SILENT, pool):
            source, target = (encoder(side) for encoder, side in zip(encoders, split, strict=True))
            for index, (tokenizer, lines) in enumerate(zip(tokenizers, (source, target), strict=True)):
                self.num_tokens[index] += len(lines.tokens)
                self.num_unknown[index] += num_unknown(lines) if tokenizer.vocabulary.has_unknown else 0
            words = None if rare is None else _rare_indices(rare, split, (source, target))
            yield EncodedPairs([pair.number for pair in pairs], (source, target), texts, words)
            advance(len(pairs))

    def _split_pairs(
        self, level: str, counts: PairCounts, notices: Notices, pool: WorkerPool
    ) -> Iterator[tuple[list[Pair], tuple[tuple[str, str], tuple[SplitText, SplitText]]]]:
        """Yield pairs with the text of both sides, and this split into symbols."""
        unit = "word" if level in SUBWORD_LEVELS else level
        pending = deque[list[Pair]]()

        def texts() -> Iterator[tuple[str, str]]:
            for pairs in _batches(self._pairs(counts, notices)):
                pending.append(pairs)
                yield _texts(pairs)

        for sides in pool.map(partial(_split_sides, unit), texts()):
            yield pending.popleft(), sides

    @property
    def _samples(self) -> bool:
        return self.rules.training and self.rules.filters.sample is not None

    def _pairs(self, counts: PairCounts, notices: Notices) -> Iterator[Pair]:
        pairs = filter_pairs(self.files, self.rules, counts, notices)
        return sample_pairs(pairs, self._total, self.rules.filters, counts) if self._samples else pairs

    def _check_not_empty(self) -> None:
        lines = self.counts.lines
        if not lines:
            held_out = f"none of its pairs was assigned to {self.name!r}"
            raise DataError(self.files.shown, "holds no lines" if self.rules.portion is None else held_out)
        if not self.counts.kept:
            reason = f"all of its {lines} pairs are dropped: {self.counts.describe_dropped()}"
            raise DataError(self.files.shown, reason)


def _batches(pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    """Yield the pairs in lists; an error comes after the pairs before it."""
    batch = list[Pair]()
    try:
        for pair in pairs:
            batch.append(pair)
            if len(batch) == _BATCH:
                yield batch
                batch = []
    except DataError:
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def _texts(pairs: Sequence[Pair]) -> tuple[str, str]:
    return "".join(pair.source + "\n" for pair in pairs), "".join(pair.target + "\n" for pair in pairs)


def _split_sides(unit: str, texts: tuple[str, str]) -> tuple[SplitText, SplitText]:
    return split_text(unit, texts[0]), split_text(unit, texts[1])


def _refuse_control_symbol(pairs: Sequence[Pair]) -> None:
    for pair in pairs:
        for line, text in ((pair.source, pair.raw.source), (pair.target, pair.raw.target)):
            with locate_errors(text.path, text.line, text.bytes_before, exact=line == text.text):
                split_line("word", line)


def _rare_indices(
    rare: Sequence[RareWordCollector], split: tuple[SplitText, SplitText], lines: tuple[EncodedLines, EncodedLines]
) -> tuple[list[int], list[int]]:
    source, target = (
        collector.add(side.symbols[index] for index in side.indices[encoded.tokens == UNK])
        for collector, side, encoded in zip(rare, split, lines, strict=True)
    )
    return source, target

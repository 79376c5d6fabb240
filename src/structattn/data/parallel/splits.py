"""A split of parallel text while it is prepared: it can be read again with the same outcome."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from structattn.data.folders.rare_words import RareWordCollector
from structattn.data.parallel.filters import Pair, Rules, Tally, filtered_pairs, sampled_pairs
from structattn.data.parallel.parallel_side import Sides
from structattn.data.parallel.reading import PairFiles, Text
from structattn.data.parallel.word_counts import UnitCounts
from structattn.data.text.reading import Notices
from structattn.data.tokenization.tokenizers import TextError, split_line
from structattn.support.errors import DataError
from structattn.support.special_tokens import UNK

_ADVANCE_EVERY = 1000
_SILENT = Notices(log=False)  # for all readings but the first, which has said everything


class EncodedPair(NamedTuple):
    """A pair as ids, with its line, its normalised texts, and the numbers of its rare words where they are kept."""

    number: int
    source: list[int]
    target: list[int]
    texts: tuple[str, str]
    rare: tuple[list[int], list[int]] | None = None


@dataclass
class Split:
    """A split, and what its readings found.

    Args:
        name: of the split.
        files: where it is.
        rules: which pairs are kept.
        tally: of the first reading.
        unknown: how many symbols of each side became ``<unk>`` when it was encoded.
    """

    name: str
    files: PairFiles
    rules: Rules
    tally: Tally = field(default_factory=Tally)
    unknown: list[int] = field(default_factory=lambda: [0, 0])

    def survey(self, cut: Callable[[str], list[str]], counts: tuple[UnitCounts, UnitCounts] | None, notices: Notices,
               advance: Callable[..., None]) -> None:  # fmt: skip
        """Check every pair, tally them, and count the units of both sides where ``counts`` are given.

        Raises:
            DataError: a file is refused, or no pair is left.
        """
        if self._samples:
            kept = Tally()
            for _ in filtered_pairs(self.files, self.rules, kept, notices):
                pass
            self._total = kept.kept
        for pair in advancing(self._pairs(self.tally, notices), advance):
            for index, (line, place) in enumerate(((pair.source, pair.raw.source), (pair.target, pair.raw.target))):
                with located(place, line):
                    cut(line)
                if counts is not None:
                    counts[index].add(line)
        self._check_some_left()
        if self.tally.dropped:
            told = f"{sum(self.tally.dropped.values())} of {self.tally.lines} pairs of {self.name} are dropped"
            notices.say(f"{self.files.shown}: {told}: {self.tally.told()}")

    def encoded(
        self, sides: Sides, rare: Sequence[RareWordCollector] | None, advance: Callable[..., None]
    ) -> Iterator[EncodedPair]:
        """Read again, and encode; at level ``word`` the rare words of both sides are collected."""
        for pair in advancing(self._pairs(Tally(), _SILENT), advance):
            ids = sides.source.tokenizer.encode(pair.source), sides.target.tokenizer.encode(pair.target)
            for index, (side, numbers) in enumerate(zip((sides.source, sides.target), ids, strict=True)):
                self.unknown[index] += numbers.count(UNK) if side.vocabulary.has_unknown else 0
            texts = pair.source, pair.target
            yield EncodedPair(pair.number, *ids, texts, None if rare is None else _rare_numbers(rare, texts, ids))

    @property
    def _samples(self) -> bool:
        return self.rules.training and self.rules.filters.sample is not None

    def _pairs(self, tally: Tally, notices: Notices) -> Iterator[Pair]:
        pairs = filtered_pairs(self.files, self.rules, tally, notices)
        return sampled_pairs(pairs, self._total, self.rules.filters, tally) if self._samples else pairs

    def _check_some_left(self) -> None:
        if not self.tally.lines:
            what = "holds no lines" if self.rules.portion is None else f"none of its pairs fell to {self.name!r}"
            raise DataError(self.files.shown, what)
        if not self.tally.kept:
            raise DataError(self.files.shown, f"all of its {self.tally.lines} pairs are dropped: {self.tally.told()}")


def _rare_numbers(
    rare: Sequence[RareWordCollector], texts: tuple[str, str], ids: tuple[list[int], list[int]]
) -> tuple[list[int], list[int]]:
    source, target = (
        side.numbers(split_line("word", text), numbers) for side, text, numbers in zip(rare, texts, ids, strict=True)
    )
    return source, target


@contextmanager
def located(place: Text, line: str) -> Iterator[None]:
    """Add file and line to what is wrong with a text, and the column where normalisation has not moved it."""
    try:
        yield
    except TextError as error:
        column = error.column if line == place.text else 1
        raise DataError(place.path, error.reason, place.line, place.bytes_before + column) from None


def advancing(items: Iterable[Pair], advance: Callable[..., None]) -> Iterator[Pair]:
    """The same items; the progress bar moves with them."""
    count = 0
    for count, item in enumerate(items, start=1):
        yield item
        if count % _ADVANCE_EVERY == 0:
            advance(_ADVANCE_EVERY)
    advance(count % _ADVANCE_EVERY)

"""A split of parallel text during preparation; it is read twice, with the same result."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from structattn.data.folders.parallel_side import ParallelSides
from structattn.data.folders.rare_words import RareWordCollector
from structattn.data.parallel.filters import Pair, PairCounts, SelectionRules, filter_pairs, sample_pairs
from structattn.data.parallel.reading import PairFiles
from structattn.data.parallel.word_counts import BoundedCounts
from structattn.data.text.reading import Notices
from structattn.data.tokenization.tokenizers import locate_errors, split_line
from structattn.support.errors import DataError
from structattn.support.progress import track
from structattn.support.special_tokens import UNK

_SILENT = Notices(log=False)  # for every pass but the first, which has collected all notices


class EncodedPair(NamedTuple):
    """A pair of ids with its line number, its normalized lines, and the indices of its rare words if stored."""

    number: int
    source: list[int]
    target: list[int]
    texts: tuple[str, str]
    rare: tuple[list[int], list[int]] | None = None


@dataclass
class Split:
    """A split and the counts gathered while reading it.

    Args:
        name: the name of the split.
        files: its files.
        rules: which pairs are selected.
        counts: the pairs of the first pass.
        num_unknown: the number of ``<unk>`` on each side after encoding.
    """

    name: str
    files: PairFiles
    rules: SelectionRules
    counts: PairCounts = field(default_factory=PairCounts)
    num_unknown: list[int] = field(default_factory=lambda: [0, 0])

    def survey(
        self,
        pretokenize: Callable[[str], list[str]],
        word_counts: tuple[BoundedCounts, BoundedCounts] | None,
        notices: Notices,
        advance: Callable[..., None],
    ) -> None:
        """Check and count every pair.

        Args:
            pretokenize: splits a normalized line; fails on lines that cannot be encoded.
            word_counts: for each side, updated with its lines; None to count no words.
            notices: collects what was dropped.
            advance: moves the progress bar.

        Raises:
            DataError: a file is refused, or no pair is left.
        """
        if self._samples:
            unsampled = PairCounts()
            for _ in filter_pairs(self.files, self.rules, unsampled, notices):
                pass
            self._total = unsampled.kept
        for pair in track(self._pairs(self.counts, notices), advance):
            for index, (line, text) in enumerate(((pair.source, pair.raw.source), (pair.target, pair.raw.target))):
                with locate_errors(text.path, text.line, text.bytes_before, exact=line == text.text):
                    pretokenize(line)
                if word_counts is not None:
                    word_counts[index].add(line)
        self._check_not_empty()
        if self.counts.dropped:
            dropped = f"{self.counts.dropped.total()} of {self.counts.lines} pairs of {self.name} are dropped"
            notices.add(f"{self.files.shown}: {dropped}: {self.counts.describe_dropped()}")

    def encode(
        self, sides: ParallelSides, rare: Sequence[RareWordCollector] | None, advance: Callable[..., None]
    ) -> Iterator[EncodedPair]:
        """Read the split again and encode it.

        Args:
            sides: the tokenizers.
            rare: collects the rare words of both sides, at level ``word``.
            advance: moves the progress bar.
        """
        for pair in track(self._pairs(PairCounts(), _SILENT), advance):
            ids = sides.source.tokenizer.encode(pair.source), sides.target.tokenizer.encode(pair.target)
            for index, (side, tokens) in enumerate(zip((sides.source, sides.target), ids, strict=True)):
                self.num_unknown[index] += tokens.count(UNK) if side.vocabulary.has_unknown else 0
            texts = pair.source, pair.target
            yield EncodedPair(pair.number, *ids, texts, None if rare is None else _rare_indices(rare, texts, ids))

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


def _rare_indices(
    rare: Sequence[RareWordCollector], texts: tuple[str, str], ids: tuple[list[int], list[int]]
) -> tuple[list[int], list[int]]:
    source, target = (
        side.add(split_line("word", text), tokens) for side, text, tokens in zip(rare, texts, ids, strict=True)
    )
    return source, target

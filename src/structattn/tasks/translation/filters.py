"""Filters of pairs: a pair is kept or dropped as a whole, and dropped pairs are counted by reason."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from structattn.support.errors import DataError, UsageError
from structattn.support.seeds import numpy_generator
from structattn.tasks.translation.reading import PairFiles, RawPair, Text, read_pairs
from structattn.text.lines import Normalization
from structattn.text.reading import Notices, Portion


@dataclass(frozen=True)
class Filters:
    """Which pairs are dropped besides those with an empty side. Lengths are in code points after normalization.

    DuSell & Chiang (2024, section 8) use ``Filters(150, 4.0, full_stops=True, sample=100_000, sample_seed=123)``; that
    full stops are dropped is in their code alone.

    Args:
        max_characters: drop pairs with a longer side, in all splits.
        max_ratio: drop training pairs whose sides' lengths differ by a larger factor.
        full_stops: drop pairs with a side that is just ".".
        sample: the number of training pairs to keep, sampled uniformly from those that pass the other filters; all if
            there are fewer.
        sample_seed: the seed of the sample.

    Raises:
        UsageError: a number is out of range.
    """

    max_characters: int | None = None
    max_ratio: float | None = None
    full_stops: bool = False
    sample: int | None = None
    sample_seed: int = 123

    def __post_init__(self) -> None:
        limits = {"max_characters": self.max_characters, "max_ratio": self.max_ratio, "sample": self.sample}
        for name, value in limits.items():
            if value is not None and not value >= 1:  # also refuses NaN
                raise UsageError(f"{name} is {value}; expected at least 1")

    def reason_to_drop(self, source: str, target: str, training: bool) -> str | None:
        """Return why a pair of normalized lines is dropped, or None if it is kept."""
        if not source or not target:
            return "blank"
        lengths = len(source), len(target)
        if self.max_characters is not None and max(lengths) > self.max_characters:
            return "long"
        if self.full_stops and "." in {source, target}:
            return "full_stop"
        if training and self.max_ratio is not None and max(lengths) > self.max_ratio * min(lengths):
            return "ratio"
        return None


@dataclass(frozen=True)
class Pair:
    """A pair that is kept: its line number, the original lines, and the normalized ones."""

    number: int
    raw: RawPair
    source: str
    target: str


@dataclass
class PairCounts:
    """The number of pairs of a split that were read, kept, and dropped by reason."""

    lines: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    dropped_words: list[int] = field(default_factory=lambda: [0, 0])

    def drop(self, reason: str, source: str, target: str) -> None:
        """Count a pair of normalized lines that is dropped."""
        self.dropped[reason] += 1
        for side, line in enumerate((source, target)):
            self.dropped_words[side] += line.count(" ") + 1 if line else 0

    def describe_dropped(self) -> str:
        """Describe the dropped pairs in words."""
        return ", ".join(f"{count} {_REASONS[reason]}" for reason, count in sorted(self.dropped.items()))


_REASONS = {
    "blank": "with an empty side",
    "long": "too long",
    "full_stop": "with a side that is only a full stop",
    "ratio": "with too different lengths",
    "sample": "not in the sample",
}


@dataclass(frozen=True)
class SelectionRules:
    """How the pairs of a split are selected.

    Args:
        training: whether the filters of training pairs apply.
        max_line_tokens: longer lines are refused, unless a filter drops them.
        words: whether that length is in words; otherwise in characters.
        portion: the portion of the files that belongs to the split; None for all.
    """

    filters: Filters
    normalization: Normalization
    training: bool
    max_line_tokens: int
    words: bool
    portion: Portion | None = None


def filter_pairs(files: PairFiles, rules: SelectionRules, counts: PairCounts, notices: Notices) -> Iterator[Pair]:
    """Read pairs, count them, and yield those that pass the filters, before sampling.

    Raises:
        DataError: a file is refused, or a line is too long.
    """
    for raw in read_pairs(files, notices):
        source, target = (rules.normalization(side.text) for side in (raw.source, raw.target))
        if rules.portion is not None and not rules.portion.contains(source):
            continue
        counts.lines += 1
        reason = rules.filters.reason_to_drop(source, target, rules.training)
        if reason is not None:
            counts.drop(reason, source, target)
            continue
        _check_length(source, raw.source, rules)
        _check_length(target, raw.target, rules)
        counts.kept += 1
        yield Pair(raw.number, raw, source, target)


def _check_length(line: str, original: Text, rules: SelectionRules) -> None:
    if len(line) <= rules.max_line_tokens:
        return
    count = line.count(" ") + 1 if rules.words else len(line)
    if count > rules.max_line_tokens:
        unit = "words" if rules.words else "characters"
        limit = f"max_line_tokens is {rules.max_line_tokens}; max_characters (--max-characters) drops such pairs"
        column = original.bytes_before + 1
        raise DataError(original.path, f"the line has {count} {unit}, but {limit}", original.line, column)


def sample_pairs(pairs: Iterator[Pair], total: int, filters: Filters, counts: PairCounts) -> Iterator[Pair]:
    """Sample ``filters.sample`` of ``total`` pairs uniformly without replacement (Knuth's algorithm S), in order."""
    wanted = total if filters.sample is None else min(filters.sample, total)
    generator = numpy_generator(filters.sample_seed, "sample of pairs")
    for seen, pair in enumerate(pairs):
        if wanted and (total - seen) * generator.random() < wanted:
            wanted -= 1
            yield pair
        else:
            counts.drop("sample", pair.source, pair.target)
            counts.kept -= 1

"""Which pairs are kept: a pair is kept whole or dropped whole, and what was dropped is counted."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from structattn.data.parallel.normalization import Normalization
from structattn.data.parallel.reading import PairFiles, RawPair, Text, read_pairs
from structattn.data.text.reading import Notices
from structattn.support.errors import DataError, UsageError
from structattn.support.seeds import derived_seed, numpy_generator


@dataclass(frozen=True)
class Filters:
    """What is dropped besides pairs with a blank side. Characters are code points after normalisation.

    DuSell & Chiang (2024, section 8) have ``Filters(150, 4.0, full_stops=True, sample=100_000, sample_seed=123)``.

    Args:
        max_characters: drop pairs with a longer side, in all splits.
        max_ratio: drop training pairs of which one side has more than so many times the characters of the other.
        full_stops: drop pairs of which a side is "." and nothing else.
        sample: keep so many training pairs, drawn evenly from those that all else keeps; all where there are fewer.
        sample_seed: decides which.

    Raises:
        UsageError: a number is out of its range.
    """

    max_characters: int | None = None
    max_ratio: float | None = None
    full_stops: bool = False
    sample: int | None = None
    sample_seed: int = 123

    def __post_init__(self) -> None:
        for name in ("max_characters", "max_ratio", "sample"):
            value = getattr(self, name)
            if value is not None and not value >= 1:  # NaN is refused, too
                raise UsageError(f"{name} is {value}; expected at least 1")

    def objection(self, source: str, target: str, training: bool) -> str | None:
        """Why a pair of normalised lines is dropped; None where it is kept."""
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
    """A pair that is kept: its line, both sides as they stand, and both normalised."""

    number: int
    raw: RawPair
    source: str
    target: str


@dataclass
class Tally:
    """How many pairs of a split were read, kept, and dropped for which reason."""

    lines: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def told(self) -> str:
        """The dropped ones in words."""
        return ", ".join(f"{count} {_WORDS[reason]}" for reason, count in sorted(self.dropped.items()))


_WORDS = {
    "blank": "with a blank side",
    "long": "too long",
    "full_stop": "of a full stop alone",
    "ratio": "of too unequal lengths",
    "sample": "not in the sample",
}


@dataclass(frozen=True)
class Portion:
    """Some of the pairs of a file, by chance, all those of one source line together; others are of other splits.

    Args:
        low: every normalised source line has a number drawn evenly from 0 to 1; those from ``low`` on are in.
        high: and those below ``high``.
        seed: of the draws.
    """

    low: float
    high: float
    seed: int

    def holds(self, source: str) -> bool:
        """Whether the pairs of a normalised source line are in."""
        return self.low <= derived_seed(self.seed, "held out", source) / 2**63 < self.high


def portions(shares: Mapping[str, float], seed: int, rest: str) -> dict[str, Portion]:
    """A portion of about each share, and all others for ``rest``; none overlap.

    Raises:
        UsageError: a share is none, or nothing is left.
    """
    found, low = {}, 0.0
    for name, share in shares.items():
        if not 0 < share < 1:
            raise UsageError(f"the share held out for {name!r} is {share}; expected more than 0 and less than 1")
        found[name] = Portion(low, low + share, seed)
        low += share
    if low >= 1:
        raise UsageError(f"the shares held out come to {low:g}; nothing is left for {rest!r}")
    return found | {rest: Portion(low, 1.0, seed)}


@dataclass(frozen=True)
class Rules:
    """How pairs of a split are chosen.

    Args:
        filters: which are dropped.
        normalization: how lines are made alike before anything else.
        training: whether the filters of training pairs apply.
        max_line_tokens: a longer line is refused, where no filter has dropped it.
        words: whether its words are counted for that, else its characters.
        portion: what is the split's own of its files; None: everything.
    """

    filters: Filters
    normalization: Normalization
    training: bool
    max_line_tokens: int
    words: bool
    portion: Portion | None = None


def filtered_pairs(files: PairFiles, rules: Rules, tally: Tally, notices: Notices) -> Iterator[Pair]:
    """The pairs that filters keep, before any sampling; ``tally`` counts them as they pass.

    Raises:
        DataError: a file is refused, or a line is too long.
    """
    for raw in read_pairs(files, notices):
        source, target = (rules.normalization(side.text) for side in (raw.source, raw.target))
        if rules.portion is not None and not rules.portion.holds(source):
            continue
        tally.lines += 1
        reason = rules.filters.objection(source, target, rules.training)
        if reason is not None:
            tally.dropped[reason] += 1
            continue
        _refuse_long(source, raw.source, rules)
        _refuse_long(target, raw.target, rules)
        tally.kept += 1
        yield Pair(raw.number, raw, source, target)


def _refuse_long(line: str, place: Text, rules: Rules) -> None:
    if len(line) <= rules.max_line_tokens:
        return
    count = line.count(" ") + 1 if rules.words else len(line)
    if count > rules.max_line_tokens:
        unit = "words" if rules.words else "characters"
        most = f"max_line_tokens allows {rules.max_line_tokens}; max_characters drops such pairs"
        raise DataError(place.path, f"{count} {unit} in one line, where {most}", place.line, place.bytes_before + 1)


def sampled_pairs(pairs: Iterator[Pair], total: int, filters: Filters, tally: Tally) -> Iterator[Pair]:
    """Each subset of ``filters.sample`` pairs is equally likely; the same seed gives the same (Knuth's algorithm S).

    Args:
        pairs: ``total`` pairs.
        total: how many.
        filters: how many are wanted, and the seed.
        tally: counts those that are left out.
    """
    wanted = total if filters.sample is None else min(filters.sample, total)
    generator = numpy_generator(filters.sample_seed, "sample of pairs")
    for seen, pair in enumerate(pairs):
        if wanted and (total - seen) * generator.random() < wanted:
            wanted -= 1
            yield pair
        else:
            tally.dropped["sample"] += 1
            tally.kept -= 1

"""Parallel text to a prepared folder for translation.

The files are read twice: once to check every pair and count words, from which subwords are learnt, and once to write;
once more before that where pairs are sampled. Memory holds different words, pieces and one pair.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from structattn.data.folders.header import SPLIT_NAME
from structattn.data.folders.writing import refuse_occupied
from structattn.data.parallel.filters import Filters, Rules, portions
from structattn.data.parallel.normalization import Normalization
from structattn.data.parallel.reading import PairFiles, found_files
from structattn.data.parallel.splits import EncodedPair, Split
from structattn.data.parallel.tokenizer_training import Coding, learn_sides
from structattn.data.parallel.word_counts import UnitCounts
from structattn.data.parallel.writing import rare_word_collectors, write_parallel
from structattn.data.text.reading import Notices
from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL
from structattn.support.errors import UsageError
from structattn.support.progress import progress

TRAIN: Final = "train"
_CODING: Final = Coding()
_FILTERS: Final = Filters()
_NORMALIZATION: Final = Normalization()


def prepare_parallel(
    folder: Path,
    splits: Mapping[str, Sequence[Path]],
    *,
    coding: Coding = _CODING,
    filters: Filters = _FILTERS,
    normalization: Normalization = _NORMALIZATION,
    hold_out: Mapping[str, float] = MappingProxyType({}),
    max_line_tokens: int = 100_000,
) -> tuple[str, ...]:
    """Check parallel text, learn its subwords, number them, and write a prepared folder, whole or not at all.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        splits: for each name its files: source and target, line for line, or one TSV, source TAB target; ``-`` is a
            TSV on standard input. ``.gz`` is decompressed. Subwords and vocabularies are taken from ``train``.
        coding: what a symbol is.
        filters: which pairs are dropped, besides those with a blank side.
        normalization: how lines are made alike before anything else.
        hold_out: for each name of a further split the share of the training pairs that it gets, by chance (the seed is
            ``filters.sample_seed``); pairs with the same source line stay together, on one side or the other.
        max_line_tokens: a longer line, in words at level ``word`` and in characters else, is refused.

    Returns:
        What the user should know: marks and CRs that were dropped, pairs that were dropped, symbols that are unknown.

    Raises:
        DataError: a file is refused; the message gives file, line, byte column and reason. Nothing is left behind.
        UsageError: an option has an impossible value, or an optional library is missing.
    """
    folder, notices = Path(folder), Notices()
    _check([*splits, *hold_out], max_line_tokens)
    chosen = portions(hold_out, filters.sample_seed, TRAIN)
    refuse_occupied(folder)
    rules = Rules(filters, normalization, False, max_line_tokens, coding.level == "word")
    with found_files(splits, folder) as given:
        files = {**given, **dict.fromkeys(hold_out, given[TRAIN])}
        sources = {name: found.entries(name, folder) for name, found in files.items()}
        found = [
            Split(name, its, replace(rules, training=name == TRAIN, portion=chosen.get(name) if hold_out else None))
            for name, its in files.items()
        ]
        source, target = _survey(found, coding, notices)
        sides = learn_sides(source.counts, target.counts, coding, normalization)
        rare = rare_word_collectors(sides, coding.joint)
        with progress("Writing", sum(split.tally.kept for split in found), "pairs") as advance:
            write_parallel(
                folder,
                sides=sides,
                joint=coding.joint,
                rare=rare,
                tokenizer={**coding.description(), **normalization.description()},
                splits={
                    split.name: _unchanged(split.encoded(sides, rare, advance), split.files, sources[split.name])
                    for split in found
                },
                with_texts=[name for name in files if name != TRAIN],
                sources=[entry for entries in sources.values() for entry in entries],
                extra=lambda: _description(found, filters, hold_out, max_line_tokens),
            )
    _say_unknown(found, notices)
    return notices.messages


def _check(splits: Sequence[str], max_line_tokens: int) -> None:
    if max_line_tokens < 1:
        raise UsageError(f"max_line_tokens is {max_line_tokens}; expected at least 1")
    if TRAIN not in splits:
        raise UsageError(f"there is no split {TRAIN!r}, only {', '.join(splits) or 'none'}")
    for name in splits:
        if splits.count(name) > 1:
            raise UsageError(f"{name!r} is given, and to be held out, too; expected one of them")
        if not re.match(SPLIT_NAME, name):
            raise UsageError(f"{name!r} cannot name a split; expected letters, digits, '-' and '_'")


def _survey(splits: Iterable[Split], coding: Coding, notices: Notices) -> tuple[UnitCounts, UnitCounts]:
    """The first reading of all splits; the words of both sides of the training text."""
    counts = UnitCounts(coding.cut), UnitCounts(coding.cut)
    with progress("Checking pairs", None, "pairs") as advance:
        for split in splits:
            split.survey(coding.cut, counts if split.name == TRAIN else None, notices, advance)
    forgotten = sum(side.forgotten for side in counts)
    if forgotten:
        notices.say(f"{forgotten} rare words were not remembered: subwords are learnt from all others")
    return counts


def _unchanged(
    pairs: Iterator[EncodedPair], files: PairFiles, entries: Sequence[Mapping[str, str]]
) -> Iterator[EncodedPair]:
    """The same pairs; what they were read from must still be what was checked when all have come."""
    yield from pairs
    files.check_unchanged(entries)


def _description(
    splits: Iterable[Split], filters: Filters, hold_out: Mapping[str, float], max_line_tokens: int
) -> dict[str, Any]:
    return {
        "filters": asdict(filters),
        **({"hold_out": dict(hold_out)} if hold_out else {}),
        "max_line_tokens": max_line_tokens,
        "lines": {split.name: split.tally.lines for split in splits},
        "dropped": {split.name: dict(sorted(split.tally.dropped.items())) for split in splits},
        "unknown_tokens": {split.name: dict(zip(("source", "target"), split.unknown, strict=True)) for split in splits},
    }


def _say_unknown(splits: Iterable[Split], notices: Notices) -> None:
    for split in splits:
        source, target = split.unknown
        if source or target:
            counts = f"{source} source and {target} target symbols"
            notices.say(f"{split.files.shown}: {counts} of {split.name} are {UNKNOWN_SYMBOL}")

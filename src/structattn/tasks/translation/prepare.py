"""Prepare parallel text: check it, train tokenizers, encode both sides of each pair together, write a folder."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from structattn.support.errors import UsageError
from structattn.support.files import open_unflushed
from structattn.support.processes import WorkerPool, worker_pool
from structattn.support.progress import progress
from structattn.tasks.loaded import require_counts
from structattn.tasks.translation.filters import Filters, SelectionRules
from structattn.tasks.translation.reading import PairFiles, PairReader, open_pair_files
from structattn.tasks.translation.splits import EncodedPairs, Split
from structattn.tasks.translation.tokenizer_training import TokenizerSettings, train_tokenizers
from structattn.text.folders.header import LINES, RARE, SPLIT_NAME, Counts
from structattn.text.folders.parallel import SOURCE_PREFIX, ParallelSides, RareWordCollector, save_sides
from structattn.text.folders.text_statistics import LARGE_UNKNOWN_SHARE
from structattn.text.folders.writing import SequenceWriter, new_prepared_folder, require_empty_folder, write_header
from structattn.text.lines import Normalization
from structattn.text.reading import Notices, split_portions
from structattn.text.tokenization.subword_tokenizer import SubwordTokenizer
from structattn.text.tokenization.subword_training import DEFAULT_CAPACITY, SymbolCounts, report_words_seen_once
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL

KIND: Final = "parallel"


def rare_word_collectors(sides: ParallelSides, joint: bool) -> tuple[RareWordCollector, RareWordCollector] | None:
    """Create the collectors of rare words of both sides, the same twice if ``joint``; None unless tokens are words."""
    if sides.target.character_tokenizer is None:
        return None
    target = RareWordCollector()
    return (target if joint else RareWordCollector()), target


def write_parallel(
    folder: Path,
    *,
    sides: ParallelSides,
    joint: bool,
    rare: tuple[RareWordCollector, RareWordCollector] | None,
    tokenizer: Mapping[str, Any],
    splits: Mapping[str, Iterable[EncodedPairs]],
    with_texts: Sequence[str],
    sources: Sequence[Mapping[str, str]],
    extra: Callable[[], Mapping[str, Any]],
) -> None:
    """Write a prepared folder atomically; equal arguments give equal bytes.

    Args:
        folder: must not exist, or be empty.
        sides: the tokenizers.
        joint: whether both sides share one vocabulary.
        rare: the rare words, complete once all pairs are encoded; None to store none.
        tokenizer: JSON; the digests are added.
        splits: maps names of splits to pairs, many at once, each iterated over once.
        with_texts: the splits whose normalized lines are stored too.
        sources: the ``source_entry`` of each file.
        extra: returns JSON; called after all pairs are written.

    Raises:
        DataError: the folder is not empty, or cannot be written; then nothing is left on disk.
    """
    with new_prepared_folder(folder) as temporary:
        save_sides(sides, temporary, joint)
        written = {
            name: _write_split(temporary / name, name, pairs, sides, name in with_texts)
            for name, pairs in splits.items()
        }
        if rare is not None:
            _save_rare_words(rare, temporary, joint)
        counts = {name: target for name, (_, target) in written.items()}
        source_tokens = {"source_tokens": {name: source.tokens for name, (source, _) in written.items()}}
        description = {**tokenizer, **sides.digests()}
        size = sides.target.vocabulary.size
        write_header(temporary, KIND, description, size, sources, counts, {**source_tokens, **extra()})


def _save_rare_words(rare: tuple[RareWordCollector, RareWordCollector], folder: Path, joint: bool) -> None:
    source, target = rare
    target.save(folder, "")
    if not joint:
        source.save(folder, SOURCE_PREFIX)


def _write_split(
    folder: Path, name: str, pairs: Iterable[EncodedPairs], sides: ParallelSides, with_texts: bool
) -> tuple[Counts, Counts]:
    """Write both sides of a split; return the counts of source and target."""
    with ExitStack() as stack:
        target = stack.enter_context(SequenceWriter(folder, f"target of {name!r}", sides.target.vocabulary.size))
        source = stack.enter_context(
            SequenceWriter(folder / "source", f"source of {name!r}", sides.source.vocabulary.size)
        )
        lines = stack.enter_context(open_unflushed(folder / LINES.name))
        text_names = ("source.txt", "target.txt") if with_texts else ()
        texts = [stack.enter_context(open_unflushed(folder / text)) for text in text_names]
        rare_folders = (folder / "source", folder) if sides.target.character_tokenizer is not None else ()
        rare = [stack.enter_context(open_unflushed(rare_folder / RARE.name)) for rare_folder in rare_folders]
        for some in pairs:
            for writer, ids in zip((source, target), some.sides, strict=True):
                writer.add_lines(ids)
            for file, indices in zip(rare, some.rare or (), strict=True):
                file.write(np.array(indices, RARE.dtype).tobytes())
            lines.write(np.array(some.numbers, LINES.dtype).tobytes())
            for file, text in zip(texts, some.texts, strict=False):
                file.write(text.encode())
    return source.counts, target.counts


TRAIN: Final = "train"

_TOKENIZER: Final = TokenizerSettings()
_FILTERS: Final = Filters()
_NORMALIZATION: Final = Normalization()


def prepare_parallel(
    folder: Path,
    splits: Mapping[str, Sequence[Path]],
    *,
    tokenizer: TokenizerSettings = _TOKENIZER,
    filters: Filters = _FILTERS,
    normalization: Normalization = _NORMALIZATION,
    hold_out: Mapping[str, float] = MappingProxyType({}),
    max_line_tokens: int = 100_000,
    reader: PairReader | None = None,
    description: Mapping[str, Any] = MappingProxyType({}),
    workers: int = 1,
) -> tuple[str, ...]:
    """Check parallel text, train its tokenizers, encode it, and write a prepared folder atomically.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        splits: maps names of splits to files: source and target, line by line, or one TSV, source TAB target; ``-`` is
            a TSV on standard input. ``.gz`` is decompressed. The tokenizers are trained on ``train``.
        tokenizer: the kind of tokenizer.
        filters: which pairs are dropped, besides those with an empty side.
        normalization: applied to lines first.
        hold_out: maps names of further splits to the random share of the training pairs that they get (the seed is
            ``filters.sample_seed``); pairs with the same source line stay together.
        max_line_tokens: longer lines are refused; in words at level ``word``, otherwise in characters.
        reader: reads the pairs of each split from one file, where they are in a form of their own.
        description: JSON that is stored in the header, too.
        workers: the number of worker processes; it does not change the result. A script that uses several guards its
            entry point with ``if __name__ == "__main__"``.

    Returns:
        Notices to the user: dropped byte-order marks, CRs and pairs, and the number of ``<unk>``.

    Raises:
        DataError: a file is refused, with file, line, byte column and reason. Nothing is left on disk.
        UsageError: an option is invalid, or an optional library is not installed.
    """
    folder, notices = Path(folder), Notices()
    require_counts(max_line_tokens=max_line_tokens)
    require_splits([*splits, *hold_out])
    portions = split_portions(hold_out, filters.sample_seed, TRAIN)
    require_empty_folder(folder)
    rules = SelectionRules(filters, normalization, False, max_line_tokens, tokenizer.level == "word")
    with open_pair_files(splits, folder, reader) as given, worker_pool(workers) as pool:
        files = {**given, **dict.fromkeys(hold_out, given[TRAIN])}
        sources = {name: its.entries(name, folder) for name, its in files.items()}
        parts = [
            Split(name, its, replace(rules, training=name == TRAIN, portion=portions.get(name) if hold_out else None))
            for name, its in files.items()
        ]
        source, target = (side.as_dict() for side in _survey(parts, tokenizer, notices, pool))
        tokenizer = tokenizer.fitted(source, target)
        sides = train_tokenizers(source, target, tokenizer, normalization)
        for name, words, side in (("source", source, sides.source), ("target", target, sides.target)):
            if isinstance(side.tokenizer, SubwordTokenizer):
                report_words_seen_once(words, side.tokenizer, notices, name)
        rare = rare_word_collectors(sides, tokenizer.joint)
        with progress("Writing", sum(part.counts.kept for part in parts), "pairs") as advance:
            write_parallel(
                folder,
                sides=sides,
                joint=tokenizer.joint,
                rare=rare,
                tokenizer={**tokenizer.description(), **normalization.description()},
                splits={
                    part.name: _check_unchanged(part.encode(sides, rare, pool, advance), part.files, sources[part.name])
                    for part in parts
                },
                with_texts=[name for name in files if name != TRAIN],
                sources=[entry for entries in sources.values() for entry in entries],
                extra=lambda: {
                    **description,
                    **_description(parts, filters, hold_out, max_line_tokens),
                },
            )
    _report_unknown(parts, notices)
    return notices.messages


def require_splits(splits: Sequence[str]) -> None:
    """Check the names of splits, with ``train`` among them.

    Raises:
        UsageError: ``train`` is missing, a name is given twice, or one cannot be that of a folder.
    """
    if TRAIN not in splits:
        raise UsageError(f"there is no split {TRAIN!r}, only {', '.join(splits) or 'none'}")
    for name in splits:
        if splits.count(name) > 1:
            raise UsageError(f"split {name!r} has files and is also held out; expected one of the two")
        if not re.match(SPLIT_NAME, name):
            raise UsageError(f"{name!r} is not a valid name of a split; expected letters, digits, '-' and '_'")


def _survey(
    splits: Iterable[Split], tokenizer: TokenizerSettings, notices: Notices, pool: WorkerPool
) -> tuple[SymbolCounts, SymbolCounts]:
    """Check all splits; return the counts of the training text's source and target side."""
    counts = SymbolCounts(DEFAULT_CAPACITY), SymbolCounts(DEFAULT_CAPACITY)
    with progress("Checking pairs", None, "pairs") as advance:
        for split in splits:
            split.survey(tokenizer.level, counts if split.name == TRAIN else None, notices, pool, advance)
    evicted = sum(side.num_evicted for side in counts)
    if evicted:
        notices.add(f"{evicted} rare words do not fit into memory; the tokenizers are trained on the others")
    return counts


def _check_unchanged(
    pairs: Iterator[EncodedPairs], files: PairFiles, entries: Sequence[Mapping[str, str]]
) -> Iterator[EncodedPairs]:
    """Yield the pairs, then check that their files have not changed since the first pass."""
    yield from pairs
    files.check_unchanged(entries)


def _description(
    splits: Iterable[Split], filters: Filters, hold_out: Mapping[str, float], max_line_tokens: int
) -> dict[str, Any]:
    return {
        "filters": asdict(filters),
        **({"hold_out": dict(hold_out)} if hold_out else {}),
        "max_line_tokens": max_line_tokens,
        "lines": {split.name: split.counts.lines for split in splits},
        "dropped": {split.name: dict(sorted(split.counts.dropped.items())) for split in splits},
        "words": {split.name: _words(split) for split in splits},
        "unknown_tokens": {
            split.name: dict(zip(("source", "target"), split.num_unknown, strict=True)) for split in splits
        },
    }


def _words(split: Split) -> dict[str, dict[str, int]]:
    """Return how many words of each side were read, kept and dropped."""
    counts = zip(("source", "target"), split.kept_words, split.counts.dropped_words, strict=True)
    return {side: {"read": kept + dropped, "kept": kept, "dropped": dropped} for side, kept, dropped in counts}


def _report_unknown(splits: Iterable[Split], notices: Notices) -> None:
    for split in splits:
        sides = list(zip(("source", "target"), split.num_unknown, split.num_tokens, strict=True))
        if any(split.num_unknown):
            stated = " and ".join(f"{unknown:,} of {tokens:,} {side} tokens" for side, unknown, tokens in sides)
            large = any(unknown > LARGE_UNKNOWN_SHARE * tokens for _, unknown, tokens in sides)
            consequence = ", so scores say little about the text" if large else ""
            notices.add(f"{split.files.shown}: {stated} of {split.name} are {UNKNOWN_SYMBOL}{consequence}")

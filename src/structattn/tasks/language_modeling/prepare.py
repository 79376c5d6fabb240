"""Training of the tokenizer of a text from the counts of its words, characters or bytes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast

import numpy as np

from structattn.support.errors import DataError
from structattn.support.files import sha256_of_file
from structattn.support.processes import WorkerPool, worker_pool
from structattn.support.progress import Advance, progress
from structattn.tasks.language_modeling.lines import (
    LINES_IN_BATCH,
    TRAIN,
    TextFile,
    count_chunk,
    cut_into_blocks,
    encode_chunk,
    mode_of,
    refuse_line,
    split_chunk,
    text_files,
    too_long,
)
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.text.folders.header import Kind
from structattn.text.folders.text_statistics import LARGE_UNKNOWN_SHARE, STATISTICS, TextStatistics
from structattn.text.folders.text_tokenizer import SPECIAL_TOKENS, TextTokenizer
from structattn.text.folders.writing import require_empty_folder, source_entry, write_tokenized
from structattn.text.reading import Notices, TextChunk
from structattn.text.tokenization.encoding import BulkEncoder, EncodedLines
from structattn.text.tokenization.pretrained_tokenizer import PretrainedTokenizer, read_pretrained_tokenizer
from structattn.text.tokenization.splitting import TextSize
from structattn.text.tokenization.subword_tokenizer import SubwordTokenizer, build_subword_tokenizers
from structattn.text.tokenization.subword_training import (
    SymbolCounts,
    pretoken_counts,
    pretokenizer,
    report_words_seen_once,
    train_subword_model,
)
from structattn.text.tokenization.tokenizers import SymbolTokenizer, choose_vocabulary
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL, replace_rare_words, unknown_class


def train_tokenizer(train: Mapping[str, int], held_out: Iterable[str], settings: TextSettings) -> TextTokenizer:
    """Choose a vocabulary, train subwords (the settings are ``fitted``), or read a pretrained tokenizer.

    Raises:
        DataError: the pretrained tokenizer is missing or damaged.
        UsageError: an optional library is not installed.
    """
    if settings.tokenizer is not None:
        return TextTokenizer(read_pretrained_tokenizer(Path(settings.tokenizer)), settings.normalization)
    if settings.subwords:
        return _train_subwords(train, settings)
    if settings.unknown_classes:
        counts = replace_rare_words(train, max(2, settings.min_count))
        others = (word if word in counts else unknown_class(word) for word in held_out)
        vocabulary = choose_vocabulary("word", counts, max_symbols=settings.max_symbols, held_out=others)
        return TextTokenizer(SymbolTokenizer("word", vocabulary, unknown_classes=True), settings.normalization)
    vocabulary = choose_vocabulary(
        settings.level, train, min_count=settings.min_count, max_symbols=settings.max_symbols, held_out=held_out
    )
    return TextTokenizer(SymbolTokenizer(settings.level, vocabulary), settings.normalization)


def _train_subwords(words: Mapping[str, int], settings: TextSettings) -> TextTokenizer:
    pretokens = pretoken_counts(words, pretokenizer(settings.level, settings.marker))
    assert settings.vocabulary_size is not None  # it is fitted
    model = train_subword_model(settings.level, pretokens, settings.vocabulary_size, settings.marker)
    (tokenizer,) = build_subword_tokenizers(model, [pretokens], settings.min_count)
    return TextTokenizer(tokenizer, settings.normalization)


_CHUNK_BYTES: Final = 1 << 20
_MAX_SUBWORD_WORDS: Final = 300_000  # training of byte-pair encoding takes 0.8 kB for each
_SETTINGS: Final = TextSettings()


@dataclass
class _Survey:
    """What the first pass over a file counted."""

    counts: SymbolCounts
    lines: int = 0
    skipped: int = 0
    size: TextSize = field(default_factory=TextSize)


@dataclass
class _Totals:
    """What the second pass over a file encoded and kept."""

    unknown_ids: tuple[int, ...]
    tokens_read: int = 0
    tokens_kept: int = 0
    unknown: int = 0

    def count(self, lines: Iterator[EncodedLines], settings: TextSettings, path: Path) -> Iterator[EncodedLines]:
        """Yield the lines, cut into blocks if wanted, and count their tokens.

        Raises:
            DataError: nothing is left of the lines.
        """

        def read() -> Iterator[EncodedLines]:
            for some in lines:
                self.tokens_read += len(some.tokens)
                yield some

        kept = 0
        for some in read() if settings.block_length is None else cut_into_blocks(read(), settings.block_length):
            kept += len(some.lengths)
            self.tokens_kept += len(some.tokens)
            self.unknown += int(np.isin(some.tokens, self.unknown_ids).sum())
            yield some
        if settings.block_length is not None and not kept:
            expected = f"expected a shorter block_length (--block-length) than {settings.block_length}, or longer lines"
            raise DataError(path, f"no {LINES_IN_BATCH:,} of its lines make a block, so nothing is left; {expected}")


def prepare_language_modeling(
    folder: Path,
    train: Path,
    valid: Path | None,
    test: Path | None = None,
    settings: TextSettings = _SETTINGS,
    *,
    hold_out: Mapping[str, float] = MappingProxyType({}),
    workers: int = 1,
) -> tuple[str, ...]:
    """Check text files, train a tokenizer, encode them, and write a prepared folder atomically.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        train: the text from which the tokenizer is trained, one sequence per line. ``.gz`` is decompressed.
        valid: validation text; None: it is held out.
        test: test text, if any.
        settings: how the text is split into tokens and stored.
        hold_out: maps names of further splits to the share of the training text that they get: random sentences,
            those that are read alike together, or the end of a stream.
        workers: the number of worker processes for text of more than a few MB. It does not change the result. A script
            that uses several guards its entry point with ``if __name__ == "__main__"``.

    Returns:
        Notices to the user: dropped byte-order marks and CRs, skipped lines, an ``<unk>`` that does not occur in train.

    Raises:
        DataError: a file is refused, with file, line, byte column and reason. Nothing is left on disk.
        UsageError: an option is invalid, or an optional library is not installed.
    """
    notices, folder = Notices(), Path(folder)
    given = {TRAIN: train, "valid": valid, "test": test}
    paths = {split: Path(path) for split, path in given.items() if path is not None}
    require_empty_folder(folder)
    sources = {split: source_entry(path, split, folder) for split, path in paths.items()}
    settings = replace(settings, mode=mode_of(settings, paths[TRAIN], notices))
    files = text_files(paths, hold_out, settings)
    sources = {split: {**sources.get(split, sources[TRAIN]), "split": split} for split in files}
    with worker_pool(workers) as pool:
        with progress("Checking text", None, "lines") as advance:
            surveys = {}
            for split, file in files.items():
                surveys[split] = _survey(file, split, settings, pool, notices, advance)
        held_out = (
            symbol for split, survey in surveys.items() if split != "train" for symbol in survey.counts.symbols()
        )
        words = surveys[TRAIN].counts.pop()
        settings = settings.fitted(words)
        tokenizer = train_tokenizer(words, held_out, settings)
        if isinstance(tokenizer.tokenizer, SubwordTokenizer):
            report_words_seen_once(words, tokenizer.tokenizer, notices)
        del words
        for survey in surveys.values():
            survey.counts.clear()  # they take the most memory
        totals = {split: _Totals(tokenizer.unknown_ids) for split in files}

        def counted() -> tuple[dict[str, TextStatistics], dict[str, int]]:
            statistics = {split: _statistics(survey, totals[split]) for split, survey in surveys.items()}
            return statistics, {split: of_split.unknown for split, of_split in totals.items()}

        with progress("Writing", sum(survey.lines for survey in surveys.values()), "lines") as advance:
            write_tokenized(
                folder,
                kind=cast("Kind", settings.mode),
                tokenizer=tokenizer,
                description=_tokenizer_description(settings, tokenizer),
                sources=list(sources.values()),
                splits={
                    split: totals[split].count(
                        _encode(file, sources[split], settings, tokenizer, pool, advance), settings, file.path
                    )
                    for split, file in files.items()
                },
                extra=lambda: {
                    **({"hold_out": dict(hold_out)} if hold_out else {}),
                    **_description(settings, *counted()),
                },
            )
    report_unknown(settings, *counted(), notices)
    return notices.messages


def _survey(
    file: TextFile, split: str, settings: TextSettings, pool: WorkerPool, notices: Notices, advance: Advance
) -> _Survey:
    path, total = file.path, _Survey(SymbolCounts(_MAX_SUBWORD_WORDS if settings.subwords else None))
    for chunk, counted in pool.map(partial(count_chunk, settings), file.chunks(_CHUNK_BYTES, notices)):
        if counted is None:
            refuse_line(settings, path, chunk)
        if settings.tokenizer is None:
            total.counts.add(counted.symbols, counted.counts)
        total.lines, total.skipped = total.lines + counted.lines, total.skipped + counted.skipped
        total.size += counted.size
        advance(counted.lines)
    if total.skipped == total.lines:
        empty = f"all of its {total.skipped} lines are empty"
        none = (
            "holds no lines"
            if file.is_whole
            else f"none of its lines was assigned to {split!r}; expected more lines, or a file for it"
        )
        raise DataError(path, empty if total.skipped else none)
    if not total.size.words:
        which = "its" if file.is_whole else f"the {split!r}"
        raise DataError(path, f"all of {which} {total.lines} lines are blank; expected text")
    if total.counts.num_evicted and split == TRAIN:
        notices.add(
            f"{path}: {total.counts.num_evicted} rare words do not fit into memory; subwords are trained on the others"
        )
    if total.skipped:
        notices.add(f"{path}: {total.skipped} empty lines are skipped")
    return total


def _encode(
    file: TextFile,
    source: Mapping[str, str],
    settings: TextSettings,
    tokenizer: TextTokenizer,
    pool: WorkerPool,
    advance: Advance,
) -> Iterator[EncodedLines]:
    """Read a file again and yield the ids of its lines, without those that are skipped."""
    path = file.path
    for chunk, lines in _encode_chunks(file, settings, tokenizer, pool):
        if settings.mode == "stream":
            yield lines
        else:
            _check_lengths(lines, settings, path, chunk)
            yield EncodedLines(lines.tokens, lines.lengths[lines.lengths > 0])
        advance(len(lines.lengths))
    if sha256_of_file(path) != source["sha256"]:
        raise DataError(path, "changed while it was being prepared")


def _encode_chunks(
    file: TextFile, settings: TextSettings, tokenizer: TextTokenizer, pool: WorkerPool
) -> Iterator[tuple[TextChunk, EncodedLines]]:
    """Yield each chunk of a file with the ids of its lines."""
    path, chunks = file.path, file.chunks(_CHUNK_BYTES)  # the first pass has collected all notices
    if isinstance(tokenizer.tokenizer, PretrainedTokenizer):  # which has threads of its own
        for chunk in chunks:
            yield chunk, encode_chunk(settings, tokenizer.tokenizer, path, chunk)
        return
    encoder = BulkEncoder(tokenizer.tokenizer)
    for chunk, split in pool.map(partial(split_chunk, settings), chunks):
        if split is None:
            refuse_line(settings, path, chunk)
        yield chunk, encoder(split)


def _check_lengths(lines: EncodedLines, settings: TextSettings, path: Path, chunk: TextChunk) -> None:
    """Refuse lines of too many subwords; those of too many words are refused before."""
    long = np.flatnonzero(lines.lengths > settings.max_line_tokens)
    if len(long):
        reason = too_long(int(lines.lengths[long[0]]), settings.max_line_tokens)
        raise DataError(path, reason, [line.number for line in chunk.lines()][int(long[0])], 1)


def _tokenizer_description(settings: TextSettings, tokenizer: TextTokenizer) -> dict[str, Any]:
    inner = tokenizer.tokenizer
    special = {SPECIAL_TOKENS: dict(inner.special)} if isinstance(inner, PretrainedTokenizer) else {}
    return settings.description() | special


def _description(
    settings: TextSettings, statistics: Mapping[str, TextStatistics], unknown: Mapping[str, int]
) -> dict[str, Any]:
    return {
        "skip_empty": settings.skip_empty,
        "max_line_tokens": settings.max_line_tokens if settings.mode == "sentences" else None,
        "skipped_lines": {split: of_split.lines_skipped for split, of_split in statistics.items()},
        **text_entries(statistics, unknown),
    }


def _statistics(survey: _Survey, totals: _Totals) -> TextStatistics:
    size, read, kept = survey.size, totals.tokens_read, totals.tokens_kept
    return TextStatistics(
        survey.lines, survey.skipped, size.words, size.characters, size.bytes, read, kept, read - kept
    )


def text_entries(statistics: Mapping[str, TextStatistics], unknown: Mapping[str, int]) -> dict[str, Any]:
    """Return what the header states of the size of each split and of the number of its unknown tokens."""
    return {
        "unknown_tokens": dict(unknown),
        STATISTICS: {split: asdict(of_split) for split, of_split in statistics.items()},
    }


def report_unknown(
    settings: TextSettings, statistics: Mapping[str, TextStatistics], unknown: Mapping[str, int], notices: Notices
) -> None:
    """Add notices of splits with many unknown tokens, and of unknown tokens that do not occur in train."""
    shares = {split: unknown[split] / max(1, of_split.tokens_kept) for split, of_split in statistics.items()}
    large = [f"{share:.1%} of {split}" for split, share in shares.items() if share > LARGE_UNKNOWN_SHARE]
    if large:
        notices.add(f"of the tokens, {', '.join(large)} are {UNKNOWN_SYMBOL}, so scores say little about the text")
    if not settings.subwords:
        _report_untrained_unknown(unknown, notices)


def _report_untrained_unknown(unknown: Mapping[str, int], notices: Notices) -> None:
    others = {split: count for split, count in unknown.items() if split != "train" and count}
    if others and not unknown["train"]:
        stated = " and ".join(
            f"{count:,} {'token' if count == 1 else 'tokens'} of {split}" for split, count in others.items()
        )
        advice = f"a min_count of 2 (--min-count 2) would make the rarest symbols of train {UNKNOWN_SYMBOL}"
        notices.add(f"{stated} are {UNKNOWN_SYMBOL}, which does not occur in train, so no model can learn it; {advice}")

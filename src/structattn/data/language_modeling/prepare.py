"""Preparation of text for language modeling.

The files are read twice: first to check every line and count symbols, so that nothing is written from text that is
refused later, then to write. Both times worker processes split chunks of lines, and this process looks up the distinct
symbols of each chunk. Memory holds the vocabulary and one chunk for each worker.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from structattn.data.folders.header import Kind
from structattn.data.folders.text_tokenizer import TextTokenizer
from structattn.data.folders.writing import require_empty_folder, source_entry, write_tokenized
from structattn.data.language_modeling.lines import count_chunk, refuse_line, split_chunk, too_long
from structattn.data.language_modeling.settings import TextSettings
from structattn.data.language_modeling.tokenizer_training import train_tokenizer
from structattn.data.text.reading import Notices, TextChunk, read_chunks
from structattn.data.tokenization.encoding import BulkEncoder, EncodedLines, num_unknown
from structattn.data.tokenization.splitting import TextSize
from structattn.data.tokenization.symbol_counts import DEFAULT_CAPACITY, SymbolCounts
from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL
from structattn.support.errors import DataError
from structattn.support.files import sha256_of_file
from structattn.support.processes import WorkerPool, worker_pool
from structattn.support.progress import progress

_CHUNK_BYTES: Final = 1 << 21
_SETTINGS: Final = TextSettings()


@dataclass
class _Survey:
    """What the first pass over a file counted."""

    counts: SymbolCounts
    lines: int = 0
    skipped: int = 0
    size: TextSize = field(default_factory=TextSize)


def prepare_language_modeling(
    folder: Path,
    train: Path,
    valid: Path,
    test: Path | None = None,
    settings: TextSettings = _SETTINGS,
    *,
    workers: int = 1,
) -> tuple[str, ...]:
    """Check text files, train a tokenizer, encode them, and write a prepared folder atomically.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        train: the text from which the tokenizer is trained, one sequence per line. ``.gz`` is decompressed.
        valid: validation text.
        test: test text, if any.
        settings: how the text is split into tokens and stored.
        workers: the number of worker processes for text of more than a few MB. It does not change the result. A script
            that uses several guards its entry point with ``if __name__ == "__main__"``.

    Returns:
        Notices to the user: dropped byte-order marks and CRs, skipped lines, an ``<unk>`` that does not occur in train.

    Raises:
        DataError: a file is refused, with file, line, byte column and reason. Nothing is left on disk.
        UsageError: an option is invalid, or an optional library is not installed.
    """
    notices, folder = Notices(), Path(folder)
    paths = {"train": Path(train), "valid": Path(valid), **({} if test is None else {"test": Path(test)})}
    require_empty_folder(folder)
    sources = [source_entry(path, split, folder) for split, path in paths.items()]
    with worker_pool(workers) as pool:
        with progress("Checking text", None, "lines") as advance:
            surveys = {split: _survey(path, settings, pool, notices, advance) for split, path in paths.items()}
        held_out = (
            symbol for split, survey in surveys.items() if split != "train" for symbol in survey.counts.symbols()
        )
        tokenizer = train_tokenizer(surveys["train"].counts.as_dict(), held_out, settings)
        for survey in surveys.values():
            survey.counts.clear()  # they take the most memory
        with progress("Writing", sum(survey.lines for survey in surveys.values()), "lines") as advance:
            unknown = dict.fromkeys(paths, 0)
            write_tokenized(
                folder,
                kind=cast("Kind", settings.mode),
                tokenizer=tokenizer,
                description=settings.description(),
                sources=sources,
                splits={
                    source["split"]: _encode(paths, source, settings, tokenizer, pool, unknown, advance)
                    for source in sources
                },
                extra=lambda: _description(surveys, settings, unknown),
            )
    if not settings.subwords:
        _report_untrained_unknown(unknown, notices)
    return notices.messages


def _survey(
    path: Path, settings: TextSettings, pool: WorkerPool, notices: Notices, advance: Callable[..., None]
) -> _Survey:
    total = _Survey(SymbolCounts(DEFAULT_CAPACITY if settings.subwords else None))
    for chunk, found in pool.map(partial(count_chunk, settings), read_chunks(path, notices, _CHUNK_BYTES)):
        if found is None:
            refuse_line(settings, path, chunk)
        total.counts.add(found.symbols, found.counts)
        total.lines, total.skipped = total.lines + found.lines, total.skipped + found.skipped
        total.size += found.size
        advance(found.lines)
    if total.skipped == total.lines:
        empty = f"all of its {total.skipped} lines are empty"
        raise DataError(path, empty if total.skipped else "holds no lines")
    if total.counts.num_evicted:
        notices.add(
            f"{path}: {total.counts.num_evicted} rare words do not fit into memory; subwords are trained on the others"
        )
    if total.skipped:
        notices.add(f"{path}: {total.skipped} empty lines are skipped")
    return total


def _encode(
    paths: Mapping[str, Path],
    source: Mapping[str, str],
    settings: TextSettings,
    tokenizer: TextTokenizer,
    pool: WorkerPool,
    unknown: dict[str, int],
    advance: Callable[..., None],
) -> Iterator[EncodedLines]:
    """Read a file again and yield the ids of its lines, without those that are skipped."""
    split, path = source["split"], paths[source["split"]]
    encoder = BulkEncoder(tokenizer.tokenizer)
    silent = Notices(log=False)  # the first pass has collected all notices
    for chunk, found in pool.map(partial(split_chunk, settings), read_chunks(path, silent, _CHUNK_BYTES)):
        if found is None:
            refuse_line(settings, path, chunk)
        lines = encoder(found)
        if settings.mode == "sentences":
            _check_lengths(lines, settings, path, chunk)
            lines = EncodedLines(lines.tokens, lines.lengths[lines.lengths > 0])
        unknown[split] += num_unknown(lines) if tokenizer.vocabulary.has_unknown else 0
        yield lines
        advance(len(found.lengths))
    if sha256_of_file(path) != source["sha256"]:
        raise DataError(path, "changed while it was being prepared")


def _check_lengths(lines: EncodedLines, settings: TextSettings, path: Path, chunk: TextChunk) -> None:
    """Refuse lines of too many subwords; those of too many words are refused before."""
    long = np.flatnonzero(lines.lengths > settings.max_line_tokens)
    if len(long):
        reason = too_long(int(lines.lengths[long[0]]), settings.max_line_tokens)
        raise DataError(path, reason, chunk.first_line + int(long[0]), 1)


def _description(surveys: Mapping[str, _Survey], settings: TextSettings, unknown: Mapping[str, int]) -> dict[str, Any]:
    return {
        "skip_empty": settings.skip_empty,
        "max_line_tokens": settings.max_line_tokens if settings.mode == "sentences" else None,
        "skipped_lines": {split: survey.skipped for split, survey in surveys.items()},
        "unknown_tokens": dict(unknown),
    }


def _report_untrained_unknown(unknown: Mapping[str, int], notices: Notices) -> None:
    others = {split: count for split, count in unknown.items() if split != "train" and count}
    if others and not unknown["train"]:
        found = " and ".join(f"{count} tokens of {split}" for split, count in others.items())
        advice = f"min_count=2 would make the rarest symbols of train {UNKNOWN_SYMBOL}"
        notices.add(f"{found} are {UNKNOWN_SYMBOL}, which does not occur in train, so no model can learn it; {advice}")

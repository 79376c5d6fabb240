"""Writing of prepared folders of parallel text; both sides of a pair are written together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np

from structattn.support.errors import DataError
from structattn.support.files import create_folder, open_unflushed, write_folder_atomically, write_unflushed
from structattn.tasks.translation.splits import EncodedPairs
from structattn.text.folders.header import HEADER_NAME, LINES, RARE, Counts, Header, Source
from structattn.text.folders.parallel_side import SOURCE_PREFIX, ParallelSides, save_sides
from structattn.text.folders.rare_words import RareWordCollector
from structattn.text.folders.writing import SequenceWriter, file_digests, require_empty_folder

KIND: Final = "parallel"


def rare_word_collectors(sides: ParallelSides, joint: bool) -> tuple[RareWordCollector, RareWordCollector] | None:
    """Create the collectors of rare words for source and target, the same one twice if ``joint``.

    Returns:
        The collectors; None unless tokens are words.
    """
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
    require_empty_folder(folder)
    try:
        create_folder(folder.parent)
        with write_folder_atomically(folder) as temporary:
            save_sides(sides, temporary, joint)
            written = {
                name: _write_split(temporary / name, name, pairs, sides, name in with_texts)
                for name, pairs in splits.items()
            }
            if rare is not None:
                _save_rare_words(rare, temporary, joint)
            header = Header(
                kind=KIND,
                tokenizer={**tokenizer, **sides.digests()},
                vocabulary_size=sides.target.vocabulary.size,
                sources=[Source.model_validate(source) for source in sources],
                splits={name: target for name, (_, target) in written.items()},
                files=file_digests(temporary),
                extra={"source_tokens": {name: source.tokens for name, (source, _) in written.items()}, **extra()},
            )
            write_unflushed(temporary / HEADER_NAME, header.to_json())
    except OSError as error:
        raise DataError(folder, f"cannot be written; nothing was kept: {error.strerror or error}") from error


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

"""Writes a prepared folder of parallel text: both sides of each pair in one go, so that no pair can come apart."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np

from structattn.data.folders.header import HEADER_NAME, LINES, RARE, Counts, Header, Source
from structattn.data.folders.rare_words import RareWordCollector
from structattn.data.folders.writing import SequenceWriter, digests_of, refuse_occupied
from structattn.data.parallel.parallel_side import SOURCE_PREFIX, Sides, save_sides
from structattn.data.parallel.splits import EncodedPair
from structattn.support.errors import DataError
from structattn.support.files import folder_written_whole

KIND: Final = "parallel"


def rare_word_collectors(sides: Sides, joint: bool) -> tuple[RareWordCollector, RareWordCollector] | None:
    """Where the rare words of the source and of the target are numbered, one place where both sides share it.

    None where symbols are not words.
    """
    if sides.target.speller is None:
        return None
    target = RareWordCollector()
    return (target if joint else RareWordCollector()), target


def write_parallel(
    folder: Path,
    *,
    sides: Sides,
    joint: bool,
    rare: tuple[RareWordCollector, RareWordCollector] | None,
    tokenizer: Mapping[str, Any],
    splits: Mapping[str, Iterable[EncodedPair]],
    with_texts: Sequence[str],
    sources: Sequence[Mapping[str, str]],
    extra: Callable[[], Mapping[str, Any]],
) -> None:
    """Write a prepared folder; the same arguments give the same bytes.

    Args:
        folder: must not exist, or be empty.
        sides: how lines become ids.
        joint: whether both sides share one vocabulary.
        rare: the words without a number, complete when all pairs have come; None: they are not kept.
        tokenizer: JSON; the digests are added.
        splits: for each name its pairs, each walked through once.
        with_texts: the splits of which the normalised lines are kept, too.
        sources: what ``source_entry`` gives.
        extra: JSON, asked for when all pairs are written.

    Raises:
        DataError: the folder holds something already, or cannot be written. Nothing is left behind then.
    """
    refuse_occupied(folder)
    try:
        with folder_written_whole(folder) as temporary:
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
                files=digests_of(temporary),
                extra={"source_tokens": {name: source.tokens for name, (source, _) in written.items()}, **extra()},
            )
            (temporary / HEADER_NAME).write_bytes(header.to_json())
    except OSError as error:
        raise DataError(folder, f"cannot be written, nothing was kept: {error.strerror or error}") from error


def _save_rare_words(rare: tuple[RareWordCollector, RareWordCollector], folder: Path, joint: bool) -> None:
    source, target = rare
    target.save(folder, "")
    if not joint:
        source.save(folder, SOURCE_PREFIX)


def _write_split(
    folder: Path, name: str, pairs: Iterable[EncodedPair], sides: Sides, with_texts: bool
) -> tuple[Counts, Counts]:
    """Write both sides; how much each holds, source first."""
    with ExitStack() as stack:
        target = stack.enter_context(SequenceWriter(folder, f"target of {name!r}", sides.target.vocabulary.size))
        source = stack.enter_context(
            SequenceWriter(folder / "source", f"source of {name!r}", sides.source.vocabulary.size)
        )
        lines = stack.enter_context((folder / LINES.name).open("wb"))
        names = ("source.txt", "target.txt") if with_texts else ()
        texts = [stack.enter_context((folder / text).open("wb")) for text in names]
        places = (folder / "source", folder) if sides.target.speller is not None else ()
        rare = [stack.enter_context((place / RARE.name).open("wb")) for place in places]
        for pair in pairs:
            source.add(pair.source)
            target.add(pair.target)
            for file, numbers in zip(rare, pair.rare or (), strict=True):
                file.write(np.array(numbers, RARE.dtype).tobytes())
            lines.write(np.array([pair.number], LINES.dtype).tobytes())
            for file, text in zip(texts, pair.texts, strict=False):
                file.write((text + "\n").encode())
    return source.counts, target.counts

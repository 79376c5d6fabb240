"""Writes a prepared folder of parallel text: both sides of each pair in one go, so that no pair can come apart."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np

from structattn.data.header import HEADER_NAME, LINES, Counts, Header, Source
from structattn.data.parallel.sides import Sides, save_sides
from structattn.data.parallel.splits import EncodedPair
from structattn.data.writing import SequenceWriter, digests_of, refuse_occupied
from structattn.support.errors import DataError
from structattn.support.files import folder_written_whole

KIND: Final = "parallel"


def write_parallel(
    folder: Path,
    *,
    sides: Sides,
    joint: bool,
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
        for pair in pairs:
            source.add(pair.source)
            target.add(pair.target)
            lines.write(np.array([pair.number], LINES.dtype).tobytes())
            for file, text in zip(texts, pair.texts, strict=False):
                file.write((text + "\n").encode())
    return source.counts, target.counts

"""The two sides of parallel text: how the lines of each are encoded, and the files that store this."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from structattn.support.errors import DataError
from structattn.support.files import write_unflushed
from structattn.support.json_files import load_json
from structattn.support.special_tokens import FIRST_SYMBOL
from structattn.text.folders.text_tokenizer import (
    KEPT_NAME,
    SUBWORD_LEVELS,
    TEXT_LEVELS,
    TextTokenizer,
    load_normalization,
    load_tokenizer_files,
)
from structattn.text.tokenization.subword_tokenizer import SubwordTokenizer

SOURCE_PREFIX: Final = "source_"
CHARACTERS_DIGEST: Final = "characters_digest"  # absent from folders without the characters of words

SideName = Literal["source", "target"]


@dataclass(frozen=True)
class ParallelSides:
    """Both sides of parallel text.

    Args:
        source: the language translated from.
        target: the language translated into.
        level: one of ``TEXT_LEVELS``.
    """

    source: TextTokenizer
    target: TextTokenizer
    level: str

    @property
    def joint(self) -> bool:
        """Whether both sides have the same vocabulary."""
        return self.source.vocabulary == self.target.vocabulary

    def digests(self) -> dict[str, str]:
        """Return the digests that the header stores."""
        found = {"digest": self.target.digest, "source_digest": self.source.digest}
        for prefix, side in (("", self.target), (SOURCE_PREFIX, self.source)):
            if side.character_tokenizer is not None:
                found[prefix + CHARACTERS_DIGEST] = side.character_tokenizer.digest
        return found


def save_sides(sides: ParallelSides, folder: Path, joint: bool) -> None:
    """Write the files of the tokenizers.

    Args:
        sides: both sides.
        folder: the prepared folder.
        joint: whether both sides share one set of files; otherwise each has its own.
    """
    sides.target.save(folder)
    if not joint:
        sides.source.save(folder, SOURCE_PREFIX)
    if sides.level in SUBWORD_LEVELS:
        kept = {"source": _kept_ids(sides.source), "target": _kept_ids(sides.target)}
        write_unflushed(folder / KEPT_NAME, json.dumps(kept) + "\n")


def load_sides(folder: Path, description: Mapping[str, Any]) -> ParallelSides:
    """Read the files that ``save_sides`` wrote.

    Args:
        folder: the prepared folder.
        description: ``tokenizer`` of its header.

    Raises:
        DataError: a file is missing, damaged, or does not have the digest that the header states.
    """
    level, joint = description.get("level"), description.get("joint")
    if level not in TEXT_LEVELS or not isinstance(joint, bool):
        raise DataError(folder, f"its header describes an unknown tokenizer: level {level!r}, joint {joint!r}")
    normalization = load_normalization(folder, description)
    kept = _load_kept(folder) if level in SUBWORD_LEVELS else {}
    load = partial(
        load_tokenizer_files, level=level, normalization=normalization, characters=CHARACTERS_DIGEST in description
    )
    target = load(folder, "", kept=kept.get("target"))
    source = load(folder, "" if joint else SOURCE_PREFIX, kept=kept.get("source"))
    sides = ParallelSides(source, target, level)
    for name, found in sides.digests().items():
        if found != description.get(name):
            changed = f"the {name} of its tokenizer was {description.get(name)} and is {found}"
            raise DataError(folder, f"changed since it was written: {changed}")
    return sides


def _kept_ids(side: TextTokenizer) -> list[int] | None:
    """Return the ids of the pieces that are used on a side; None for all."""
    tokenizer = side.tokenizer
    assert isinstance(tokenizer, SubwordTokenizer)
    kept = tokenizer.model.kept
    pieces = side.vocabulary.symbols[FIRST_SYMBOL + 1 :]
    if kept is None or len(kept) == len(pieces):
        return None
    return sorted(side.vocabulary.id_of[piece] for piece in kept)


def _load_kept(folder: Path) -> dict[str, list[int] | None]:
    path = folder / KEPT_NAME
    found = load_json(path)
    fits = isinstance(found, dict) and set(found) == {"source", "target"}
    if not fits or not all(ids is None or _are_ids(ids) for ids in found.values()):
        raise DataError(path, "expected an object with source and target, each null or a list of ids")
    return dict(found)


def _are_ids(ids: object) -> bool:
    return isinstance(ids, list) and all(type(token) is int for token in ids)

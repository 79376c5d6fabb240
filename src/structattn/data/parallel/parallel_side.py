"""The two languages of parallel text: how the lines of each become ids, and back, and the files that say so."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, Protocol, SupportsInt

from structattn.data.folders.header import CHARACTERS_NAME, VOCABULARY_NAME
from structattn.data.parallel.normalization import Normalization
from structattn.data.tokenization.spelling import Speller
from structattn.data.tokenization.subword_files import load_subwords, save_subwords
from structattn.data.tokenization.subword_tokenizer import SubwordTokenizer
from structattn.data.tokenization.tokenizers import LEVELS, Tokenizer
from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL, Vocabulary
from structattn.support.errors import DataError
from structattn.support.special_tokens import FIRST_SYMBOL

SUBWORD_LEVELS: Final = ("bpe", "sentencepiece-bpe", "sentencepiece-unigram")
PARALLEL_LEVELS: Final = (*SUBWORD_LEVELS, *LEVELS)
KEPT_NAME: Final = "kept.json"
SOURCE_PREFIX: Final = "source_"
CHARACTERS_DIGEST: Final = "characters_digest"  # not there in folders of an earlier release

SideName = Literal["source", "target"]


class LineTokenizer(Protocol):
    """Lines to ids and back."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The numbering."""

    @property
    def digest(self) -> str:
        """The SHA-256 of all that decides how a line becomes ids."""

    def encode(self, line: str) -> list[int]:
        """The ids of a line, without ``<bos>`` and ``<eos>``."""

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """The line that ids stand for."""


@dataclass(frozen=True)
class Side:
    """One language; ``decode(encode(line))`` is ``normalization(line)`` up to what is ``<unk>``.

    Args:
        tokenizer: from normalised lines to ids and back.
        normalization: how lines are made alike before.
        speller: how words are spelt, at level ``word``.
    """

    tokenizer: LineTokenizer
    normalization: Normalization
    speller: Speller | None = None

    @property
    def vocabulary(self) -> Vocabulary:
        """The numbering."""
        return self.tokenizer.vocabulary

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all that decides how a line becomes ids."""
        return hashlib.sha256(
            json.dumps([self.normalization.description(), self.tokenizer.digest]).encode()
        ).hexdigest()

    def encode(self, line: str) -> list[int]:
        """The ids of a line, without ``<bos>`` and ``<eos>``.

        Raises:
            TextError: a word is spelt like a control symbol, at level ``word``.
        """
        return self.tokenizer.encode(self.normalization(line))

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """The line that ids stand for; control symbols are left out."""
        return self.tokenizer.decode(ids)


@dataclass(frozen=True)
class Sides:
    """Both languages.

    Args:
        source: what is translated.
        target: what it becomes.
        level: one of ``PARALLEL_LEVELS``.
    """

    source: Side
    target: Side
    level: str

    @property
    def joint(self) -> bool:
        """Whether both have one numbering."""
        return self.source.vocabulary == self.target.vocabulary

    def digests(self) -> dict[str, str]:
        """What the header keeps of them."""
        found = {"digest": self.target.digest, "source_digest": self.source.digest}
        for prefix, side in (("", self.target), (SOURCE_PREFIX, self.source)):
            if side.speller is not None:
                found[prefix + CHARACTERS_DIGEST] = side.speller.digest
        return found


def save_sides(sides: Sides, folder: Path, joint: bool) -> None:
    """Write the files that say how lines become ids: one set where both sides share it, else two."""
    named = {"": sides.target} if joint else {"": sides.target, SOURCE_PREFIX: sides.source}
    for prefix, side in named.items():
        side.vocabulary.save(folder / (prefix + VOCABULARY_NAME))
        if side.speller is not None:
            side.speller.characters.save(folder / (prefix + CHARACTERS_NAME))
        if isinstance(side.tokenizer, SubwordTokenizer):
            save_subwords(side.tokenizer.subwords, folder, prefix)
    if sides.level in SUBWORD_LEVELS:
        kept = {"source": _kept_ids(sides.source), "target": _kept_ids(sides.target)}
        (folder / KEPT_NAME).write_bytes((json.dumps(kept) + "\n").encode())


def load_sides(folder: Path, description: Mapping[str, Any]) -> Sides:
    """Read what ``save_sides`` wrote.

    Args:
        folder: the prepared folder.
        description: ``tokenizer`` of its header.

    Raises:
        DataError: a file is missing, damaged, or not the one that the header describes.
    """
    level, joint = description.get("level"), description.get("joint")
    if level not in PARALLEL_LEVELS or not isinstance(joint, bool):
        raise DataError(folder, f"its header's tokenizer is of no known kind: level {level!r}, joint {joint!r}")
    try:
        normalization = Normalization.described(description)
    except ValueError as error:
        raise DataError(folder, f"its header's tokenizer: {error}") from None
    kept = _load_kept(folder) if level in SUBWORD_LEVELS else {}
    spelt = CHARACTERS_DIGEST in description
    target = _load_side(folder, "", level, normalization, kept.get("target"), spelt)
    source = _load_side(folder, "" if joint else SOURCE_PREFIX, level, normalization, kept.get("source"), spelt)
    sides = Sides(source, target, level)
    for name, found in sides.digests().items():
        if found != description.get(name):
            changed = f"the {name} of its tokenizer was {description.get(name)} and is {found}"
            raise DataError(folder, f"changed since it was written: {changed}")
    return sides


def _load_side(
    folder: Path, prefix: str, level: str, normalization: Normalization, kept: list[int] | None, spelt: bool
) -> Side:
    vocabulary = Vocabulary.load(folder / (prefix + VOCABULARY_NAME))
    if level not in SUBWORD_LEVELS:
        speller = Speller(_loaded_characters(folder / (prefix + CHARACTERS_NAME))) if spelt else None
        return Side(Tokenizer(level, vocabulary), normalization, speller)
    subwords = load_subwords(level, folder, prefix)
    numbers = range(FIRST_SYMBOL + 1, vocabulary.size) if kept is None else kept
    if any(not FIRST_SYMBOL < number < vocabulary.size for number in numbers):
        raise DataError(folder / KEPT_NAME, f"names a piece outside the vocabulary of {vocabulary.size} symbols")
    return Side(
        SubwordTokenizer(subwords.restricted(vocabulary.symbols[n] for n in numbers), vocabulary), normalization
    )


def _loaded_characters(path: Path) -> Vocabulary:
    characters = Vocabulary.load(path)
    if not characters.has_unknown:
        raise DataError(path, f"has no {UNKNOWN_SYMBOL} for characters that are new")
    return characters


def _kept_ids(side: Side) -> list[int] | None:
    """The ids that may come out on a side; None where all may."""
    tokenizer = side.tokenizer
    assert isinstance(tokenizer, SubwordTokenizer)
    kept = tokenizer.subwords.kept
    pieces = side.vocabulary.symbols[FIRST_SYMBOL + 1 :]
    if kept is None or len(kept) == len(pieces):
        return None
    return sorted(side.vocabulary.id_of[piece] for piece in kept)


def _load_kept(folder: Path) -> dict[str, list[int] | None]:
    path = folder / KEPT_NAME
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"not JSON: {error}") from None
    fits = isinstance(found, dict) and set(found) == {"source", "target"}
    if not fits or not all(ids is None or _are_numbers(ids) for ids in found.values()):
        raise DataError(path, "should hold source and target, each null or a list of ids")
    return dict(found)


def _are_numbers(ids: object) -> bool:
    return isinstance(ids, list) and all(type(number) is int for number in ids)

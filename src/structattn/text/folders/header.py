"""The header of a prepared folder: its contents, its sources, and the digest of every other file."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from structattn.support.errors import DataError
from structattn.support.reading import MAX_COUNT, parse_json, read_bytes
from structattn.support.validation import first_problem

FORMAT_VERSION: Final = 1
HEADER_NAME, VOCABULARY_NAME = "header.json", "vocabulary.txt"
CHARACTERS_NAME, RARE_WORDS_NAME = "characters.txt", "rare_words.txt"
STANDARD_INPUT: Final = "-"
"""The path of a source that was standard input and cannot be read again."""


@dataclass(frozen=True)
class StoredArray:
    """Name and element type of an array file of a split."""

    name: str
    dtype: np.dtype[Any]


TOKENS = StoredArray("tokens.bin", np.dtype("<i4"))
OFFSETS = StoredArray("offsets.bin", np.dtype("<i8"))
LOG_PROBABILITIES = StoredArray("log_probabilities.bin", np.dtype("<f8"))
LINES = StoredArray("lines.bin", np.dtype("<i8"))
RARE = StoredArray("rare.bin", np.dtype("<i4"))
EDITS = StoredArray("edits.bin", np.dtype("<i4"))
TREES = StoredArray("trees.bin", np.dtype("<i4"))  # for each token; the others are for each sequence

Kind = Literal["formal_language", "sentences", "stream", "transduction", "recognition", "parallel"]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
SPLIT_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"  # a folder name; excludes paths and the names of other files in the folder
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$")]  # inside
SplitName = Annotated[str, Field(pattern=SPLIT_NAME)]


class _HeaderModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Source(_HeaderModel):
    """A source file: its path relative to the prepared folder, the digest of its bytes, and the split made from it."""

    path: str
    sha256: Digest
    split: str


class Counts(_HeaderModel):
    """The size of a split; ``tokens`` excludes ``<bos>`` and ``<eos>``."""

    sequences: int = Field(ge=0, le=MAX_COUNT)
    tokens: int = Field(ge=0, le=MAX_COUNT)


class Header(_HeaderModel):
    """The contents of ``header.json``."""

    format_version: Literal[1] = FORMAT_VERSION
    kind: Kind
    tokenizer: dict[str, Any] = Field(description="level, options and digest")
    vocabulary_size: int = Field(ge=3, le=MAX_COUNT)
    sources: list[Source]
    splits: dict[SplitName, Counts]
    files: dict[FileName, Digest] = Field(description="the SHA-256 of every file except the header")
    extra: dict[str, Any]

    @property
    def tokenizer_digests(self) -> dict[str, str]:
        """The digests of tokenizer and vocabulary, and of those of the source of parallel text."""
        return {name: value for name, value in self.tokenizer.items() if name.endswith("digest")}

    def count(self, *keys: str) -> int | None:
        """Return the whole number at a path of keys in ``extra``; None if there is none."""
        value: Any = self.extra
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if type(value) is int and value >= 0 else None

    def to_json(self) -> bytes:
        """Return the bytes of the file; equal headers give equal bytes."""
        return (json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n").encode()


def read_header(folder: Path) -> tuple[Header, str]:
    """Read the header of a prepared folder; return it, and the SHA-256 of its bytes.

    Raises:
        DataError: it is missing or damaged, or has another format version.
    """
    path = folder / HEADER_NAME
    try:
        content = read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        reason = f"not a prepared folder: it has no {HEADER_NAME}"
        if not folder.exists():
            reason = "no such folder; expected one that `structattn prepare` has written"
        elif not folder.is_dir():
            reason = "is a file; expected a folder that `structattn prepare` has written"
        raise DataError(folder, reason) from None
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None
    _check_format_version(path, content)
    try:
        return Header.model_validate_json(content), hashlib.sha256(content).hexdigest()
    except ValidationError as error:
        raise DataError(path, f"not a header: {first_problem(error)}") from None


def _check_format_version(path: Path, content: bytes) -> None:
    try:
        tree = parse_json(content)
    except ValueError as error:
        raise DataError(path, f"not JSON: {error}") from None
    version = tree.get("format_version") if isinstance(tree, Mapping) else None
    if version != FORMAT_VERSION:
        raise DataError(path, f"has format version {version!r}; this release reads version {FORMAT_VERSION}")

"""The header of a prepared folder: what it holds, what it was made from, and the digest of every other file."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from structattn.support.errors import DataError

FORMAT_VERSION: Final = 1
HEADER_NAME, VOCABULARY_NAME = "header.json", "vocabulary.txt"
CHARACTERS_NAME, RARE_WORDS_NAME = "characters.txt", "rare_words.txt"


@dataclass(frozen=True)
class StoredArray:
    """The name and the element type of one of a split's files."""

    name: str
    dtype: np.dtype[Any]


TOKENS = StoredArray("tokens.bin", np.dtype("<i4"))
OFFSETS = StoredArray("offsets.bin", np.dtype("<i8"))
LOG_PROBABILITIES = StoredArray("log_probabilities.bin", np.dtype("<f8"))
LINES = StoredArray("lines.bin", np.dtype("<i8"))
RARE = StoredArray("rare.bin", np.dtype("<i4"))

Kind = Literal["formal_language", "sentences", "stream", "transduction", "parallel"]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
SPLIT_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"  # names a folder, never a path, nor one of the files beside it
SplitName = Annotated[str, Field(pattern=SPLIT_NAME)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Source(_Part):
    """A file that was read: its path from the prepared folder, the digest of its bytes, the split it became."""

    path: str
    sha256: Digest
    split: str


class Counts(_Part):
    """The size of a split; ``tokens`` counts neither ``<bos>`` nor ``<eos>``."""

    sequences: int = Field(ge=0)
    tokens: int = Field(ge=0)


class Header(_Part):
    """All of ``header.json``."""

    format_version: Literal[1] = FORMAT_VERSION
    kind: Kind
    tokenizer: dict[str, Any] = Field(description="level, options and digest")
    vocabulary_size: int = Field(ge=3)
    sources: list[Source]
    splits: dict[SplitName, Counts]
    files: dict[str, Digest] = Field(description="the SHA-256 of every file but the header itself")
    extra: dict[str, Any]

    def to_json(self) -> bytes:
        """The bytes of the file; the same header gives the same bytes."""
        return (json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n").encode()


def read_header(folder: Path) -> tuple[Header, str]:
    """Read a prepared folder's header.

    Returns:
        The header, and the SHA-256 of its bytes.

    Raises:
        DataError: there is none, or it is damaged or of another format version.
    """
    path = folder / HEADER_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DataError(folder, f"not a prepared folder: it has no {HEADER_NAME}") from None
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None
    _refuse_other_version(path, content)
    try:
        return Header.model_validate_json(content), hashlib.sha256(content).hexdigest()
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise DataError(path, f"not a header: {field}: {first['msg']}") from None


def _refuse_other_version(path: Path, content: bytes) -> None:
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"not JSON: {error}") from None
    version = tree.get("format_version") if isinstance(tree, Mapping) else None
    if version != FORMAT_VERSION:
        raise DataError(path, f"has format version {version!r}; this release reads version {FORMAT_VERSION}")

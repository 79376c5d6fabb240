"""Learnt subwords as files of a prepared folder."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from structattn.data.tokenization.byte_pairs import BytePairs
from structattn.data.tokenization.sentencepiece_tokenizer import SentencePieces
from structattn.data.tokenization.subword_tokenizer import Subwords
from structattn.support.errors import DataError

BYTE_PAIRS_NAME, SENTENCE_PIECES_NAME = "subwords.json", "subwords.model"


def save_subwords(subwords: Subwords, folder: Path, prefix: str) -> None:
    """Write ``subwords.json`` or ``subwords.model``, without what ``restricted`` added."""
    if isinstance(subwords, BytePairs):
        content = {"format_version": 1, "marker": subwords.marker, "merges": subwords.merges}
        text = json.dumps(content, ensure_ascii=False, indent=0) + "\n"
        (folder / (prefix + BYTE_PAIRS_NAME)).write_bytes(text.encode())
    elif isinstance(subwords, SentencePieces):
        (folder / (prefix + SENTENCE_PIECES_NAME)).write_bytes(subwords.model)
    else:
        raise TypeError(f"no file holds {type(subwords).__name__}")


def load_subwords(level: str, folder: Path, prefix: str) -> Subwords:
    """Read what ``save_subwords`` wrote. Nothing that is read can run code.

    Raises:
        DataError: the file is missing or damaged.
    """
    path = folder / (prefix + (BYTE_PAIRS_NAME if level == "bpe" else SENTENCE_PIECES_NAME))
    try:
        content = path.read_bytes()
        return _byte_pairs(json.loads(content)) if level == "bpe" else SentencePieces(content)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(path, f"not a list of merges: {error!r}") from None


def _byte_pairs(content: Any) -> BytePairs:
    if content["format_version"] != 1:
        raise ValueError(f"format version {content['format_version']!r}; this release reads version 1")
    return BytePairs(tuple(_pair(merge) for merge in content["merges"]), content["marker"])


def _pair(merge: Iterable[Any]) -> tuple[str, str]:
    left, right = merge
    if not (isinstance(left, str) and isinstance(right, str) and left and right):
        raise ValueError(f"{merge!r} is not a pair of pieces")
    return left, right

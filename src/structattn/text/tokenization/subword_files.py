"""Files of subword models in a prepared folder."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from structattn.support.errors import DataError
from structattn.support.files import write_unflushed
from structattn.support.reading import parse_json, read_bytes
from structattn.text.tokenization.byte_pair_encoding import BytePairEncoding
from structattn.text.tokenization.sentencepiece_model import SentencePieceModel
from structattn.text.tokenization.subword_tokenizer import SubwordModel

BPE_NAME, SENTENCEPIECE_NAME = "subwords.json", "subwords.model"


def save_subword_model(model: SubwordModel, folder: Path, prefix: str) -> None:
    """Write ``subwords.json`` (BPE) or ``subwords.model`` (SentencePiece), without the restriction ``kept``.

    Args:
        model: the subword model.
        folder: the prepared folder.
        prefix: put before the file's name.

    Raises:
        TypeError: the model is neither a ``BytePairEncoding`` nor a ``SentencePieceModel``.
    """
    if isinstance(model, BytePairEncoding):
        content = {"format_version": 1, "marker": model.marker, "merges": model.merges}
        write_unflushed(folder / (prefix + BPE_NAME), json.dumps(content, ensure_ascii=False, indent=0) + "\n")
    elif isinstance(model, SentencePieceModel):
        write_unflushed(folder / (prefix + SENTENCEPIECE_NAME), model.model)
    else:
        raise TypeError(f"no file format for {type(model).__name__}")


def load_subword_model(level: str, folder: Path, prefix: str) -> SubwordModel:
    """Read the file that ``save_subword_model`` wrote. Loading it runs no code.

    Args:
        level: ``bpe`` or one of the SentencePiece levels.
        folder: the prepared folder.
        prefix: put before the file's name.

    Raises:
        DataError: the file is missing or damaged.
    """
    path = folder / (prefix + (BPE_NAME if level == "bpe" else SENTENCEPIECE_NAME))
    try:
        content = read_bytes(path)
        return _parse_merges(parse_json(content)) if level == "bpe" else SentencePieceModel(content)
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(path, f"not a list of merges: {error!r}") from None


def _parse_merges(content: Any) -> BytePairEncoding:
    if content["format_version"] != 1:
        raise ValueError(f"format version {content['format_version']!r}; this release reads version 1")
    return BytePairEncoding(tuple(_parse_pair(merge) for merge in content["merges"]), content["marker"])


def _parse_pair(merge: Iterable[Any]) -> tuple[str, str]:
    left, right = merge
    if not (isinstance(left, str) and isinstance(right, str) and left and right):
        raise ValueError(f"{merge!r} is not a pair of pieces")
    return left, right

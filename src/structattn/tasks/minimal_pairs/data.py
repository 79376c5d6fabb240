"""Minimal pairs of sentences: the files of BLiMP, MultiBLiMP and BLiMP-NL."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from structattn.support.errors import DataError
from structattn.support.json_files import Shape, check_shape
from structattn.support.reading import parse_json
from structattn.text.reading import Line, Notices, read_lines

_FIELDS = {"syntax/semantics": "syntax_semantics"}
_PHENOMENA = {"s-selection": "argument_structure"}
PREFIX_METHODS = ("one_prefix", "two_prefix")


class Continuations(NamedTuple):
    """Two prefixes, and the words that continue each; the first continuation is the acceptable one."""

    prefixes: tuple[str, str]
    words: tuple[str, str]


@dataclass(frozen=True)
class MinimalPair:
    """An acceptable and an unacceptable sentence that differ minimally, and what each prefix method compares."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str
    field: str
    continuations: dict[str, Continuations]
    path: Path
    line: int


def read_minimal_pairs(path: Path, notices: Notices) -> list[MinimalPair]:
    """Read minimal pairs in file order.

    Args:
        path: a file, or a folder with files ``*.jsonl`` or ``*.jsonl.gz``, which are read in the order of their names.
        notices: collects notices of reading.

    Raises:
        DataError: there are no pairs, or one is malformed.
    """
    paths = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")]) if path.is_dir() else [path]
    pairs = [pair for each in paths for pair in _read(each, notices)]
    if not pairs:
        raise DataError(path, "holds no minimal pairs; expected BLiMP's *.jsonl or *.jsonl.gz, or a folder of them")
    return pairs


def _read(path: Path, notices: Notices) -> Iterator[MinimalPair]:
    for line in read_lines(path, notices):
        entry = _entry(path, line)
        field, phenomenon = entry["field"], entry["linguistics_term"]
        yield MinimalPair(
            good=entry["sentence_good"],
            bad=entry["sentence_bad"],
            paradigm=entry["UID"],
            phenomenon=_PHENOMENA.get(phenomenon, phenomenon),
            field=_FIELDS.get(field, field),
            continuations={
                method: _continuations(entry, method) for method in PREFIX_METHODS if entry.get(f"{method}_method")
            },
            path=path,
            line=line.number,
        )


_Text = Annotated[str, Field(min_length=1, max_length=10_000, pattern=r"\S")]


class _Pair(Shape):
    sentence_good: _Text
    sentence_bad: _Text
    UID: _Text
    linguistics_term: _Text
    field: _Text
    one_prefix_method: bool = False
    two_prefix_method: bool = False


class _OnePrefix(Shape):
    one_prefix_prefix: _Text
    one_prefix_word_good: _Text
    one_prefix_word_bad: _Text


class _TwoPrefix(Shape):
    two_prefix_prefix_good: _Text
    two_prefix_prefix_bad: _Text
    two_prefix_word: _Text


def _entry(path: Path, line: Line) -> dict[str, Any]:
    try:
        entry = parse_json(line.text.encode())
    except ValueError as error:
        raise DataError(path, f"not JSON: {error}", line.number) from None
    if not isinstance(entry, dict):
        raise DataError(path, f"holds {type(entry).__name__}; expected a JSON object", line.number)
    check_shape(_Pair, entry, path, line.number)
    for method, shape in (("one_prefix", _OnePrefix), ("two_prefix", _TwoPrefix)):
        if entry.get(f"{method}_method"):
            check_shape(shape, entry, path, line.number)
    return entry


def _continuations(entry: dict[str, Any], method: str) -> Continuations:
    if method == "one_prefix":
        prefix = entry["one_prefix_prefix"]
        return Continuations((prefix, prefix), (entry["one_prefix_word_good"], entry["one_prefix_word_bad"]))
    word = entry["two_prefix_word"]
    return Continuations((entry["two_prefix_prefix_good"], entry["two_prefix_prefix_bad"]), (word, word))

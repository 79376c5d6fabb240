"""Minimal pairs of sentences: the files of BLiMP, MultiBLiMP and BLiMP-NL."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, dropwhile
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field

from structattn.support.environment import name_of
from structattn.support.errors import DataError
from structattn.support.json_files import Shape, check_shape, parse_object
from structattn.text.reading import Line, Notices, read_lines

BLIMP: Final = "BLiMP"
PHENOMENA = (
    "anaphor_agreement",
    "argument_structure",
    "binding",
    "control_raising",
    "determiner_noun_agreement",
    "ellipsis",
    "filler_gap_dependency",
    "irregular_forms",
    "island_effects",
    "npi_licensing",
    "quantifiers",
    "subject_verb_agreement",
)
FIELDS = ("syntax", "morphology", "syntax_semantics", "semantics")
_NUM_PARADIGMS = 67

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


_SUFFIXES = ("jsonl", "tsv", "csv")
_JSON_NAME = re.compile(r"\.jsonl?(\.gz)?$")


def read_minimal_pairs(path: Path, notices: Notices) -> list[MinimalPair]:
    """Read minimal pairs in file order.

    Args:
        path: a file of BLiMP, JSON lines, or a table with the columns of ``COLUMNS``, as those of MultiBLiMP and
            BLiMP-NL; or a folder with files ``*.jsonl``, ``*.tsv`` and ``*.csv``, which are read in the order of their
            names. ``.gz`` is decompressed. Blank lines are skipped.
        notices: collects notices of reading.

    Raises:
        DataError: there are no pairs, or one is malformed.
    """
    patterns = [f"*.{suffix}{compressed}" for suffix in _SUFFIXES for compressed in ("", ".gz")]
    paths = sorted(each for pattern in patterns for each in path.glob(pattern)) if path.is_dir() else [path]
    pairs = [pair for each in paths for pair in _read(each, notices)]
    if not pairs:
        raise DataError(path, f"holds no minimal pairs; expected {', '.join(patterns)}, or a folder of them")
    return pairs


def suite_name(path: Path, pairs: Sequence[MinimalPair]) -> str:
    """Return ``BLIMP`` for pairs of all its paradigms, otherwise the name of their file or folder, or another."""
    of_blimp = all(pair.field in FIELDS and pair.phenomenon in PHENOMENA for pair in pairs)
    if of_blimp and len({pair.paradigm for pair in pairs}) == _NUM_PARADIGMS:
        return BLIMP
    name = _stem(path)
    return f"{name}-part" if name == BLIMP else name


def _stem(path: Path) -> str:
    """Return the name of a file without the endings of minimal pairs; that of a folder as it is."""
    return re.sub(r"\.(jsonl|tsv|csv|txt)(\.gz)?$", "", name_of(path))


def _read(path: Path, notices: Notices) -> Iterator[MinimalPair]:
    lines = dropwhile(lambda line: not line.text.strip(), read_lines(path, notices))
    for first in lines:
        is_json = _JSON_NAME.search(path.name) or first.text.lstrip().startswith("{")
        yield from (_read_json_lines if is_json else _read_table)(path, chain([first], lines))


COLUMNS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "good": ("sentence_good", "sen"),
        "bad": ("sentence_bad", "wrong_sen"),
        "phenomenon": ("phenomenon", "linguistic_phenomenon", "linguistics_term"),
        "paradigm": ("paradigm", "grammatical_feature", "uid"),
        "field": ("field", "lang"),
    }
)
"""Part of a minimal pair -> names of its column in tables, in BLiMP-NL, MultiBLiMP or BLiMP.

Names are compared in lower case, spaces and hyphens as underscores; other columns are ignored. Without its column, the
phenomenon is the name of the file, the paradigm the phenomenon, and the field the name of the file.
"""
_MOST_CHARACTERS = 10_000
_QUOTING = "a cell that begins with a quotation mark ends with one, and those inside are doubled, as in CSV"


def _read_table(path: Path, lines: Iterable[Line]) -> Iterator[MinimalPair]:
    """Read a table with a header, whose columns are separated by tabs, commas or semicolons, with quotes as in CSV."""
    first, *rest = lines
    delimiter = max("\t,;", key=first.text.count)
    rows = csv.reader((f"{line.text}\n" for line in (first, *rest)), delimiter=delimiter, strict=True)
    try:
        header = next(rows)
        columns, name = _columns(path, header, first.number), _stem(path)
        for row in rows:
            number = first.number - 1 + rows.line_num
            if len(row) <= 1 and not "".join(row).strip():
                continue
            if len(row) != len(header):
                raise DataError(path, f"has {len(row)} columns; the header has {len(header)}", number)
            parts = {part: row[column].strip() for part, column in columns.items()}
            for part in ("good", "bad"):
                if not 1 <= len(parts[part]) <= _MOST_CHARACTERS:
                    reason = f"{header[columns[part]]} has {len(parts[part]):,} characters"
                    raise DataError(path, f"{reason}; expected 1 to {_MOST_CHARACTERS:,}", number)
            phenomenon = parts.get("phenomenon") or name
            paradigm = f"{phenomenon}: {parts['paradigm']}" if parts.get("paradigm") else phenomenon
            field = parts.get("field") or name
            yield MinimalPair(parts["good"], parts["bad"], paradigm, phenomenon, field, {}, path, number)
    except csv.Error as error:
        reason = f"not a table: {error}; {_QUOTING}"
        raise DataError(path, reason, first.number - 1 + rows.line_num) from None


def _columns(path: Path, header: Sequence[str], number: int) -> dict[str, int]:
    """Return the column of each part of a pair that has one."""
    names = [name.strip().lower().replace(" ", "_").replace("-", "_") for name in header]
    found = {
        part: next(names.index(name) for name in accepted if name in names)
        for part, accepted in COLUMNS.items()
        if not set(accepted).isdisjoint(names)
    }
    if twice := [header[column] for column in found.values() if names.count(names[column]) > 1]:
        raise DataError(path, f"has the column {twice[0]} twice; expected it once", number)
    missing = [" or ".join(COLUMNS[part]) for part in ("good", "bad") if part not in found]
    if missing:
        raise DataError(path, f"has the columns {', '.join(header):.200}; expected {', and '.join(missing)}", number)
    return found


def _read_json_lines(path: Path, lines: Iterable[Line]) -> Iterator[MinimalPair]:
    for line in lines:
        if not line.text.strip():
            continue
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
    entry = parse_object(line.text.encode(), path, line.number)
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

"""Reading of chunked text in the format of CoNLL-2000: a line ``word POS chunk`` for each word, blank lines between.

| input                                        | outcome                                    |
|----------------------------------------------|--------------------------------------------|
| what ``text.reading`` refuses                | refused with file, line and byte column    |
| a line without exactly three fields          | refused with file and line                 |
| a chunk tag that is not O, B-TYPE or I-TYPE  | refused with file and line                 |
| I-TYPE after neither B-TYPE nor I-TYPE       | refused with file and line                 |
| several blank lines, or some at either end   | accepted: there are no empty sentences     |
| no sentence at all                           | refused with the file                      |
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from structattn.support.errors import DataError, quoted
from structattn.text.reading import Line, Notices, read_lines

_CHUNK_TAG = re.compile(r"O|[BI]-.+")


@dataclass(frozen=True)
class ChunkedSentence:
    """A sentence with one part-of-speech tag and one chunk tag for each word, and the line of its first word."""

    words: tuple[str, ...]
    parts_of_speech: tuple[str, ...]
    chunks: tuple[str, ...]
    path: Path
    line: int


def read_chunked_sentences(path: Path, notices: Notices) -> list[ChunkedSentence]:
    """Read the sentences of a file.

    Raises:
        DataError: something is malformed; the message gives file, line and reason.
    """
    sentences = list(_sentences(path, notices))
    if not sentences:
        raise DataError(path, "has no sentences; expected lines `word POS chunk`")
    return sentences


def _sentences(path: Path, notices: Notices) -> Iterator[ChunkedSentence]:
    rows, first = list[tuple[str, str, str]](), 0
    for line in read_lines(path, notices):
        if line.text.strip(" \t"):
            first = first if rows else line.number
            rows.append(_row(line, rows[-1][2] if rows else "O", path))
        elif rows:
            yield _sentence(rows, path, first)
            rows = []
    if rows:
        yield _sentence(rows, path, first)


def _sentence(rows: list[tuple[str, str, str]], path: Path, line: int) -> ChunkedSentence:
    words, parts_of_speech, chunks = zip(*rows, strict=True)
    return ChunkedSentence(words, parts_of_speech, chunks, path, line)


def _row(line: Line, previous: str, path: Path) -> tuple[str, str, str]:
    fields = re.findall(r"[^ \t]+", line.text)
    if len(fields) != 3:
        raise DataError(path, f"has {len(fields)} fields; expected word, part of speech and chunk tag", line.number)
    word, part_of_speech, chunk = fields
    if not _CHUNK_TAG.fullmatch(chunk):
        raise DataError(path, f"the chunk tag {quoted(chunk)}; expected O, B-TYPE or I-TYPE", line.number)
    if chunk[0] == "I" and previous[1:] != chunk[1:]:
        raise DataError(path, f"{quoted(chunk)} follows {quoted(previous)}; a phrase begins with B", line.number)
    return word, part_of_speech, chunk


def majority_tags(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, str], str]:
    """Return the tag that each symbol most often has, and the most frequent tag of all, for other symbols.

    Of equally frequent tags this is the first in alphabetical order.

    Raises:
        ValueError: there are no pairs (symbol, tag).
    """
    counts: dict[str, Counter[str]] = {}
    for symbol, tag in pairs:
        counts.setdefault(symbol, Counter())[tag] += 1
    if not counts:
        raise ValueError("no tagged symbols; expected at least one")
    total = sum(counts.values(), Counter[str]())
    return {symbol: _most_frequent(tags) for symbol, tags in counts.items()}, _most_frequent(total)


def _most_frequent(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))

"""LingEval97's JSON (Sennrich 2017): a list of ``{source, reference, errors: [{type, contrastive, distance?}]}``.

| input                                                | outcome                                    |
|------------------------------------------------------|--------------------------------------------|
| what ``text.py`` refuses; what is no JSON            | refused: file, line, byte column           |
| something else than a list, or an empty one          | refused                                    |
| an entry, or an error of one, without what it needs  | refused: file, the line of the entry       |
| ``origin``, ``frequency``, other fields              | passed over                                |
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from structattn.data.contrastive.contrast import Contrast
from structattn.data.text.reading import Notices, read_lines
from structattn.support.errors import DataError

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def read_lingeval97(path: Path, notices: Notices) -> list[Contrast]:
    """Read all pairs: of each entry its errors, in file order.

    Cost: memory for the whole file.

    Raises:
        DataError: see the table above.
    """
    text = "\n".join(line.text for line in read_lines(path, notices))
    found = [contrast for line, entry in _entries(path, text) for contrast in _contrasts(path, line, entry)]
    if not found:
        raise DataError(path, "holds no contrastive translations")
    return found


def _entries(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """The members of a list, each with the line at which it begins; decoded one by one, which JSON alone hides."""
    place = _after_blanks(text, 0)
    _expect(path, text, place, "[")
    place, line, counted = _after_blanks(text, place + 1), 1, 0
    while not text.startswith("]", place):
        line, counted = line + text.count("\n", counted, place), place
        try:
            entry, place = _DECODER.raw_decode(text, place)
        except ValueError as error:  # a number of too many digits has no place
            reason = f"not JSON: {getattr(error, 'msg', error)}"
            raise _refused(path, text, getattr(error, "pos", place), reason) from None
        except RecursionError:
            raise DataError(path, "nested too deeply", line) from None
        yield line, entry
        place = _after_blanks(text, place)
        if not text.startswith("]", place):
            _expect(path, text, place, ",")
            place = _after_blanks(text, place + 1)
    end = _after_blanks(text, place + 1)
    if end < len(text):
        raise _refused(path, text, end, "something follows the list")


def _after_blanks(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return place if found is None else found.end()


def _expect(path: Path, text: str, place: int, what: str) -> None:
    if not text.startswith(what, place):
        found = repr(text[place]) if place < len(text) else "the end"
        raise _refused(path, text, place, f"not a JSON list of entries: expected {what!r}, found {found}")


def _refused(path: Path, text: str, place: int, reason: str) -> DataError:
    start = text.rfind("\n", 0, place) + 1
    return DataError(path, reason, text.count("\n", 0, place) + 1, len(text[start:place].encode()) + 1)


def _contrasts(path: Path, line: int, entry: Any) -> Iterator[Contrast]:
    source, reference = (_text(path, line, entry, field) for field in ("source", "reference"))
    errors = entry.get("errors")
    if not isinstance(errors, list):
        raise DataError(path, f"errors is {errors!r}; expected a list", line)
    for error in errors:
        kind, contrastive = (_text(path, line, error, field) for field in ("type", "contrastive"))
        yield Contrast(source, reference, contrastive, kind, _distance(path, line, error.get("distance")), path, line)


def _distance(path: Path, line: int, distance: Any) -> int | None:
    """A number, which its own scorer takes as digits, too."""
    if isinstance(distance, str) and distance.isascii() and distance.isdigit():
        return int(distance)
    if distance is not None and (type(distance) is not int or distance < 0):
        raise DataError(path, f"distance is {distance!r}; expected a whole number", line)
    return distance


def _text(path: Path, line: int, tree: Any, field: str) -> str:
    if not isinstance(tree, dict):
        raise DataError(path, f"found {tree!r:.60}; expected a JSON object", line)
    text = tree.get(field)
    if not isinstance(text, str) or not text.strip():
        raise DataError(path, f"{field} is {text!r:.60}; expected text", line)
    return text

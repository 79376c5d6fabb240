"""Reading of LingEval97's JSON (Sennrich 2017).

The file is a list of ``{source, reference, errors: [{type, contrastive, distance?}]}``.

| input                                                | outcome                                    |
|------------------------------------------------------|--------------------------------------------|
| what ``data.text.reading`` refuses; invalid JSON     | refused with file, line and byte column    |
| anything other than a list, or an empty one          | refused                                    |
| an entry, or an error of one, without a needed field | refused with file and line of the entry    |
| ``origin``, ``frequency``, other fields              | ignored                                    |
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from structattn.support.errors import DataError
from structattn.tasks.translation.contrast import Contrast
from structattn.text.reading import Notices, read_lines

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def read_lingeval97(path: Path, notices: Notices) -> list[Contrast]:
    """Read one pair for each error of each entry, in file order.

    Cost: memory of the whole file.

    Raises:
        DataError: see the table above.
    """
    text = "\n".join(line.text for line in read_lines(path, notices))
    found = [contrast for line, entry in _entries(path, text) for contrast in _parse_entry(path, line, entry)]
    if not found:
        raise DataError(path, "holds no contrastive translations")
    return found


def _entries(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    """Yield the members of a list with the lines at which they begin; ``json.loads`` would not give the lines."""
    position = _skip_blanks(text, 0)
    _expect(path, text, position, "[")
    position, line, counted = _skip_blanks(text, position + 1), 1, 0
    while not text.startswith("]", position):
        line, counted = line + text.count("\n", counted, position), position
        try:
            entry, position = _DECODER.raw_decode(text, position)
        except ValueError as error:  # an error about a number with too many digits has no position
            reason = f"not JSON: {getattr(error, 'msg', error)}"
            raise _error_at(path, text, getattr(error, "pos", position), reason) from None
        except RecursionError:
            raise DataError(path, "nested too deeply", line) from None
        yield line, entry
        position = _skip_blanks(text, position)
        if not text.startswith("]", position):
            _expect(path, text, position, ",")
            position = _skip_blanks(text, position + 1)
    end = _skip_blanks(text, position + 1)
    if end < len(text):
        raise _error_at(path, text, end, "unexpected text after the list")


def _skip_blanks(text: str, position: int) -> int:
    found = _BLANK.match(text, position)
    return position if found is None else found.end()


def _expect(path: Path, text: str, position: int, what: str) -> None:
    if not text.startswith(what, position):
        found = repr(text[position]) if position < len(text) else "the end"
        raise _error_at(path, text, position, f"not a JSON list of entries: expected {what!r}, found {found}")


def _error_at(path: Path, text: str, position: int, reason: str) -> DataError:
    start = text.rfind("\n", 0, position) + 1
    return DataError(path, reason, text.count("\n", 0, position) + 1, len(text[start:position].encode()) + 1)


def _parse_entry(path: Path, line: int, entry: Any) -> Iterator[Contrast]:
    source, reference = (_get_text(path, line, entry, field) for field in ("source", "reference"))
    errors = entry.get("errors")
    if not isinstance(errors, list):
        raise DataError(path, f"errors is {errors!r}; expected a list", line)
    for error in errors:
        kind, contrastive = (_get_text(path, line, error, field) for field in ("type", "contrastive"))
        yield Contrast(
            source, reference, contrastive, kind, _check_distance(path, line, error.get("distance")), path, line
        )


def _check_distance(path: Path, line: int, distance: Any) -> int | None:
    """Check a distance, which LingEval97's own scorer also accepts as a string of digits."""
    if isinstance(distance, str) and distance.isascii() and distance.isdigit():
        return int(distance)
    if distance is not None and (type(distance) is not int or distance < 0):
        raise DataError(path, f"distance is {distance!r}; expected a whole number", line)
    return distance


def _get_text(path: Path, line: int, tree: Any, field: str) -> str:
    if not isinstance(tree, dict):
        raise DataError(path, f"found {tree!r:.60}; expected a JSON object", line)
    text = tree.get(field)
    if not isinstance(text, str) or not text.strip():
        raise DataError(path, f"{field} is {text!r:.60}; expected text", line)
    return text

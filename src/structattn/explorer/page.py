"""The page of the explorer: a script, a style sheet, and the data of recordings in elements that do not run."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, Final

from structattn.report.page import tag
from structattn.support.errors import StructattnError, UsageError
from structattn.support.files import check_writable_file, write_atomically
from structattn.support.reading import open_regular

SIGNATURE: Final = "<!-- structattn explorer -->"
MAX_RECORDINGS: Final = 2
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}

Json = Mapping[str, Any]


def _bundle(name: str) -> str:
    return files("structattn.explorer").joinpath(name).read_text(encoding="utf-8")


def _source_hash(text: str) -> str:
    """Return how a content security policy names an inline script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def content_security_policy(script: str, style: str, connect: str) -> str:
    """Return the policy of a page: nothing is loaded, nothing but this script runs, and no text becomes markup.

    ``script`` and ``style`` are the texts of their elements; ``connect`` names what the script may request.
    """
    rules = {
        "default-src": "'none'",
        "script-src": _source_hash(script),
        "style-src": _source_hash(style),
        "img-src": "data: blob:",  # of exports
        "connect-src": connect,
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _json_element(recording: Json) -> str:
    """Return a recording without its arrays. No token can end the element: ``<`` is escaped."""
    content = {"run": recording["run"], "examples": recording["examples"]}
    return f'<script type="application/json" class="recording">{_escaped(content)}</script>\n'


def _escaped(content: Json) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False).translate(_ESCAPES)


def _array_elements(recording: Json, number: int) -> Iterator[str]:
    for index, text in enumerate(recording["arrays"]):
        if not isinstance(text, str) or _BASE64.fullmatch(text) is None:
            raise StructattnError(f"array {index} of the recording is not base64")
        yield f'<script type="text/plain" id="array-{number}-{index}">{text}</script>\n'


def _parts(recordings: Sequence[Json], live: Json | None) -> Iterator[str]:
    connect = "'none'" if live is None else "'self'"
    script, style = _bundle("explorer.js"), _bundle("explorer.css")
    title = " and ".join(str(recording["run"]["name"]) for recording in recordings)
    policy = content_security_policy(script, style, connect)
    yield f'<!doctype html>\n{SIGNATURE}\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
    yield '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
    yield f"{tag('title', title)}\n<style>{style}</style>\n</head>\n<body>\n"
    yield '<div id="explorer"><noscript>This page needs JavaScript.</noscript></div>\n'
    yield from map(_json_element, recordings)
    if live is not None:
        yield f'<script type="application/json" id="live">{_escaped(live)}</script>\n'
    yield f"<script>{script}</script>\n"
    # The arrays follow the script, so that the first is shown while the parser is at the others.
    for number, recording in enumerate(recordings):
        yield from _array_elements(recording, number)
    yield "</body>\n</html>\n"


def explorer_page(recordings: Sequence[Json], live: Json | None = None) -> bytes:
    """Return the page of recordings, in UTF-8.

    Args:
        recordings: one or two, as JSON objects; see ``recording_to_json`` and docs/records.md. Two are shown side by
            side, the examples of the same index together.
        live: what the page needs to request new recordings from the server that it came from; None: it requests
            nothing.

    Raises:
        UsageError: there are none or more than two.
        StructattnError: an array is not base64.

    Cost: the size of the recordings, and about 100 kB.
    """
    if not 1 <= len(recordings) <= MAX_RECORDINGS:
        raise UsageError(f"{len(recordings)} recordings; expected 1 or {MAX_RECORDINGS}")
    # A lone surrogate becomes an escape of JSON.
    return "".join(_parts(recordings, live)).encode(errors="backslashreplace")


def write_explorer(path: str | PathLike[str], recordings: Sequence[Json]) -> None:
    """Write the page of recordings to a file, atomically; an earlier page is overwritten.

    Raises:
        UsageError: there are none or more than two.
        StructattnError: an array is not base64, or the path has something other than such a page.
        OSError: the file cannot be written.
    """
    path = Path(path)
    require_page(path)
    write_atomically(path, explorer_page(recordings))


def require_page(path: Path) -> None:
    """Check that a page can be written to a path: that it is new, or has an earlier page.

    Raises:
        StructattnError: it has something else.
        OSError: it cannot be created.
    """
    if path.exists() and not _is_page(path):
        found = "a folder" if path.is_dir() else "another file"
        raise StructattnError(f"{path}: expected a new file, or an earlier page of the explorer; found {found}")
    check_writable_file(path)


def _is_page(path: Path) -> bool:
    if not path.is_file():
        return False
    with open_regular(path) as file:
        return SIGNATURE.encode() in file.read(200)

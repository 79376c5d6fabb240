"""Files of recordings, which reports and the explorer read; docs/records.md describes them."""

import base64
import binascii
import zlib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from structattn.analysis.recording import RecordedExample, Recording
from structattn.analysis.searched_text import RecordedBeamSearch
from structattn.inference.records import ACTION_NAMES, BOTTOM, Contents, Record
from structattn.support.errors import DataError, UsageError
from structattn.support.files import write_atomically
from structattn.support.json_files import json_with_digest, read_json
from structattn.support.reading import MAX_BYTES

FORMAT_VERSION = 2
KIND = "recording"
_DTYPES = {"float32": np.dtype("<f4"), "int32": np.dtype("<i4")}
_CONTENTS = ("height", "at_least", "positions", "symbols")
_OF_NODES = ("parents", "steps", "log_probabilities", "scores", "finished")  # of a beam search
_ARRAYS = ("weights", "actions", "best_run", "truth")
_OVER_SOURCE = ("cross", "source-receptive-field")  # sublayers of a decoder whose keys are the source

Array = np.ndarray[tuple[int, ...], np.dtype[Any]]
Json = dict[str, Any]


def write_recording(path: str | PathLike[str], recording: Recording) -> None:
    """Write a recording to a file, atomically.

    Raises:
        UsageError: the file would be larger than 256 MiB, which is the most that is read.
        OSError: it cannot be written.
    """
    path = Path(path)
    text = json_with_digest(KIND, path.name, recording_to_json(recording), indent=None)
    if (size := len(text.encode())) > MAX_BYTES:
        raise UsageError(f"{path}: would have {size >> 20} MiB; expected at most 256: record fewer or shorter examples")
    write_atomically(path, text)


def recording_to_json(recording: Recording) -> Json:
    """Return the content of a file of a recording, without its digest."""
    arrays = list[str]()
    return {
        "format_version": FORMAT_VERSION,
        "run": dict(recording.run),
        "examples": [_example_to_json(each, arrays) for each in recording.examples],
        "arrays": arrays,
    }


def read_recording(path: str | PathLike[str]) -> Recording:
    """Read a recording.

    Raises:
        DataError: the file cannot be read, has changed since it was written, or is no recording.
    """
    path = Path(path)
    return recording_from_json(read_json(path, KIND), path)


def read_recording_json(path: str | PathLike[str]) -> Json:
    """Read the content of a file of a recording as it stands, its arrays packed.

    Raises:
        DataError: as for ``read_recording``.
    """
    path = Path(path)
    content = read_json(path, KIND)
    recording_from_json(content, path)
    return content


def recording_from_json(content: Json, path: Path) -> Recording:
    """Return the recording in the content of a file.

    Raises:
        DataError: it is none of this version.
    """
    if content.get("format_version") != FORMAT_VERSION:
        raise DataError(path, f"has format_version {content.get('format_version')}; expected {FORMAT_VERSION}")
    try:
        examples = [_example_from_json(each, content["arrays"]) for each in content["examples"]]
        return Recording(content["run"], tuple(examples))
    except (KeyError, IndexError, TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise DataError(path, f"is no recording: {type(error).__name__}: {error}") from None


def _packed(array: Array, arrays: list[str]) -> Json:
    """Append the numbers of an array, compressed, and return what describes them."""
    name = "float32" if np.issubdtype(array.dtype, np.floating) else "int32"
    numbers = np.ascontiguousarray(array, dtype=_DTYPES[name]).tobytes()
    arrays.append(base64.b64encode(zlib.compress(numbers, 1)).decode())
    return {"array": len(arrays) - 1, "dtype": name, "shape": list(array.shape)}


def _unpacked(description: Mapping[str, Any], arrays: list[str]) -> Array:
    dtype, shape = _DTYPES[description["dtype"]], tuple(description["shape"])
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    unpack = zlib.decompressobj()
    numbers = unpack.decompress(base64.b64decode(arrays[description["array"]], validate=True), size + 1)
    if len(numbers) != size:
        raise ValueError(f"array {description['array']} has not the {size} bytes of its shape {shape}")
    return np.frombuffer(numbers, dtype=dtype).reshape(shape)


def _example_to_json(example: RecordedExample, arrays: list[str]) -> Json:
    content = {
        "split": example.split,
        "example": example.example,
        "tokens": list(example.tokens),
        "source": None if example.source is None else list(example.source),
        "predicted": list(example.predicted),
        "surprisal": _packed(example.surprisal, arrays),
        "records": [_record_to_json(each, example, arrays) for each in example.records],
        "beam_search": None if example.beam_search is None else _search_to_json(example.beam_search, arrays),
    }
    return {key: value for key, value in content.items() if value is not None}


def _example_from_json(content: Json, arrays: list[str]) -> RecordedExample:
    source, search = content.get("source"), content.get("beam_search")
    texts = {"tokens": tuple(content["tokens"]), "source": None if source is None else tuple(source)}
    return RecordedExample(
        tokens=tuple(content["tokens"]),
        source=texts["source"],
        predicted=tuple(content["predicted"]),
        surprisal=_unpacked(content["surprisal"], arrays),
        records=tuple(_record_from_json(each, texts, arrays) for each in content["records"]),
        split=content.get("split"),
        example=content.get("example"),
        beam_search=None if search is None else _search_from_json(search, arrays),
    )


def _search_to_json(search: RecordedBeamSearch, arrays: list[str]) -> Json:
    found = {name: _packed(getattr(search, name), arrays) for name in _OF_NODES}
    return {"tokens": list(search.tokens), "best": search.best, "text": search.text, **found}


def _search_from_json(content: Json, arrays: list[str]) -> RecordedBeamSearch:
    found: dict[str, Any] = {name: _unpacked(content[name], arrays) for name in _OF_NODES}
    found["finished"] = found["finished"].astype(bool)
    return RecordedBeamSearch(tokens=tuple(content["tokens"]), best=content["best"], text=content["text"], **found)


def _record_to_json(record: Record, example: RecordedExample, arrays: list[str]) -> Json:
    queries = "source" if record.side == "encoder" else "tokens"
    keys = "source" if record.sublayer in _OVER_SOURCE else queries
    found = {name: getattr(record, name) for name in _ARRAYS}
    content = {
        "side": record.side,
        "layer": record.layer,
        "sublayer": record.sublayer,
        "head": record.head,
        "mechanism": record.mechanism,
        "queries": queries,
        "keys": keys,
        "bottom": len(record.sources) > len(getattr(example, keys)),
        "action_names": ACTION_NAMES.get(record.mechanism),
        **{name: None if array is None else _packed(array, arrays) for name, array in found.items()},
    }
    if record.contents is not None:
        parts = {name: getattr(record.contents, name) for name in _CONTENTS}
        content["contents"] = {name: _packed(part, arrays) for name, part in parts.items() if part is not None}
    return {key: value for key, value in content.items() if value is not None}


def _record_from_json(content: Json, texts: Mapping[str, tuple[str, ...] | None], arrays: list[str]) -> Record:
    tokens, sources = texts[content["queries"]], texts[content["keys"]]
    if tokens is None or sources is None:
        raise ValueError("a record refers to a source that the example does not have")
    found = {name: _unpacked(content[name], arrays) if name in content else None for name in _ARRAYS}
    contents = None
    if "contents" in content:
        parts = {name: _unpacked(part, arrays) for name, part in content["contents"].items()}
        contents = Contents(**parts)
    return Record(
        tokens=tokens,
        layer=content["layer"],
        sublayer=content["sublayer"],
        head=content.get("head"),
        mechanism=content["mechanism"],
        sources=(BOTTOM, *sources) if content["bottom"] else sources,
        side=content.get("side"),
        contents=contents,
        **found,  # type: ignore[arg-type]  # weights are always there
    )

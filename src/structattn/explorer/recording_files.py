"""Files of recordings, with bounds within which reports and the explorer can show them."""

import base64
import binascii
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from structattn.explorer.recording import RecordedExample, Recording
from structattn.explorer.searched_text import RecordedBeamSearch
from structattn.loading.records import ACTION_NAMES, BOTTOM, Contents, Record
from structattn.report.runs import Run, json_files, named_folders, read_run
from structattn.support.errors import DataError, UsageError
from structattn.support.files import write_atomically
from structattn.support.json_files import Shape, check_shape, json_with_digest, load_json, without_digest
from structattn.support.reading import MAX_BYTES

_Index = Annotated[int, Field(ge=0, le=10_000)]
_Texts = Annotated[list[str], Field(min_length=1, max_length=1_000_000)]


class _Array(Shape):
    array: Annotated[int, Field(ge=0)]
    dtype: Literal["float32", "int32"]
    shape: list[Annotated[int, Field(ge=0, le=1_000_000)]]


class _Contents(Shape):
    height: _Array
    at_least: _Array
    positions: _Array
    symbols: _Array | None = None


class _Record(Shape):
    side: Literal["encoder", "decoder"] | None = None
    layer: _Index
    sublayer: Literal["attention", "cross", "stack", "receptive-field", "source-receptive-field"]
    head: _Index | None = None
    mechanism: str
    queries: Literal["tokens", "source"]
    keys: Literal["tokens", "source"]
    bottom: bool
    weights: _Array
    actions: _Array | None = None
    best_run: _Array | None = None
    truth: _Array | None = None
    contents: _Contents | None = None

    @model_validator(mode="after")
    def _check_sublayer(self) -> Self:
        if (self.mechanism == "receptive_field") != self.sublayer.endswith("receptive-field"):
            raise ValueError(f"mechanism {self.mechanism!r:.40} in sublayer {self.sublayer!r}")
        return self


class _BeamSearch(Shape):
    tokens: _Texts
    parents: _Array
    steps: _Array
    log_probabilities: _Array
    scores: _Array
    finished: _Array
    best: Annotated[int, Field(ge=0)]
    text: str


class _Example(Shape):
    split: str | None = None
    example: Annotated[int, Field(ge=0)] | None = None
    tokens: _Texts
    source: _Texts | None = None
    predicted: list[str | None]
    surprisal: _Array
    records: list[_Record]
    beam_search: _BeamSearch | None = None


class RecordingShape(Shape):
    """A recording of examples, and the numbers of its arrays."""

    run: dict[str, Any]
    examples: list[_Example]
    arrays: list[str]


FORMAT_VERSION = 2
KIND = "recording"
ANY_NAME = "recording.json"  # in the digest: a file may be renamed
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
        UsageError: the file or an array would be larger than 256 MiB, which is the most that is read.
        OSError: it cannot be written.
    """
    path = Path(path)
    text = json_with_digest(KIND, ANY_NAME, recording_to_json(recording), indent=None)
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
        DataError: the file cannot be read, has changed since it was written, or is no recording of this version.
    """
    path = Path(path)
    return recording_from_json(_content(path), path)


def read_recording_json(path: str | PathLike[str]) -> Json:
    """Read the content of a file of a recording as it stands, its arrays packed.

    Raises:
        DataError: as for ``read_recording``.
    """
    path = Path(path)
    content = _content(path)
    recording_from_json(content, path)
    return content


def _content(path: Path) -> Json:
    content = load_json(path)
    if isinstance(content, dict) and (version := content.get("format_version")) != FORMAT_VERSION:
        raise DataError(
            path,
            f"has format_version {version!r:.20}; expected {FORMAT_VERSION}: delete the file, and write records anew "
            "with `structattn evaluate` or `structattn explore --save`",
        )
    return check_shape(RecordingShape, without_digest(content, path, KIND, ANY_NAME), path)


def recording_from_json(content: Json, path: Path) -> Recording:
    """Return the recording in the content of a file.

    Raises:
        DataError: it is no recording.
    """
    try:
        examples = [_example_from_json(each, content["arrays"]) for each in content["examples"]]
        return Recording(content["run"], tuple(examples))
    except (KeyError, IndexError, TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise DataError(path, f"is no recording: {type(error).__name__}: {error}") from None


def _packed(array: Array, arrays: list[str]) -> Json:
    """Append the numbers of an array, compressed, and return what describes them."""
    name = "float32" if np.issubdtype(array.dtype, np.floating) else "int32"
    numbers = np.ascontiguousarray(array, dtype=_DTYPES[name]).tobytes()
    if len(numbers) > MAX_BYTES:
        raise UsageError(f"an array of shape {array.shape} has {len(numbers) >> 20} MiB; expected at most 256")
    arrays.append(base64.b64encode(zlib.compress(numbers, 1)).decode())
    return {"array": len(arrays) - 1, "dtype": name, "shape": list(array.shape)}


def _unpacked(description: Mapping[str, Any], arrays: list[str]) -> Array:
    dtype, shape = _DTYPES[description["dtype"]], tuple(description["shape"])
    size = dtype.itemsize * math.prod(shape)
    if size > MAX_BYTES:
        raise ValueError(f"array {description['array']} has {size >> 20} MiB; expected at most 256")
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
    tokens = tuple(content["tokens"])
    texts = {"tokens": tokens, "source": None if source is None else tuple(source)}
    surprisal = _unpacked(content["surprisal"], arrays)
    if surprisal.shape != (len(tokens),) or len(content["predicted"]) != len(tokens):
        raise ValueError(f"expected predicted and surprisal for each of {len(tokens)} tokens")
    return RecordedExample(
        tokens=tokens,
        source=texts["source"],
        predicted=tuple(content["predicted"]),
        surprisal=surprisal,
        records=tuple(_record_from_json(each, texts, arrays) for each in content["records"]),
        split=content.get("split"),
        example=content.get("example"),
        beam_search=None if search is None else _search_from_json(search, arrays),
    )


def _search_to_json(search: RecordedBeamSearch, arrays: list[str]) -> Json:
    of_nodes = {name: _packed(getattr(search, name), arrays) for name in _OF_NODES}
    return {"tokens": list(search.tokens), "best": search.best, "text": search.text, **of_nodes}


def _search_from_json(content: Json, arrays: list[str]) -> RecordedBeamSearch:
    of_nodes: dict[str, Any] = {name: _unpacked(content[name], arrays) for name in _OF_NODES}
    of_nodes["finished"] = of_nodes["finished"].astype(bool)
    tokens = tuple(content["tokens"])
    for name, array in of_nodes.items():
        _require_shape(name, array, (len(tokens),))
    parents = of_nodes["parents"]
    if parents[0] != -1 or (parents[1:] < 0).any() or (parents >= np.arange(len(tokens))).any():
        raise ValueError("the nodes of a beam search are no tree: expected each after its parent, the root first")
    if content["best"] >= len(tokens):
        raise ValueError(f"best is node {content['best']} of {len(tokens)}")
    return RecordedBeamSearch(tokens=tokens, best=content["best"], text=content["text"], **of_nodes)


def _record_to_json(record: Record, example: RecordedExample, arrays: list[str]) -> Json:
    queries = "source" if record.side == "encoder" else "tokens"
    keys = "source" if record.sublayer in _OVER_SOURCE else queries
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
        **{name: None if (array := getattr(record, name)) is None else _packed(array, arrays) for name in _ARRAYS},
    }
    if record.contents is not None:
        parts = {name: getattr(record.contents, name) for name in _CONTENTS}
        content["contents"] = {name: _packed(part, arrays) for name, part in parts.items() if part is not None}
    return {key: value for key, value in content.items() if value is not None}


def _record_from_json(content: Json, texts: Mapping[str, tuple[str, ...] | None], arrays: list[str]) -> Record:
    tokens, sources = texts[content["queries"]], texts[content["keys"]]
    if tokens is None or sources is None:
        raise ValueError("a record refers to a source that the example does not have")
    sources = (BOTTOM, *sources) if content["bottom"] else sources
    names = [name for name in _ARRAYS if name == "weights" or name in content]
    fields: dict[str, Any] = {name: _unpacked(content[name], arrays) for name in names}
    num_actions = len(ACTION_NAMES[content["mechanism"]]) if "actions" in fields else 0
    time, size = len(tokens), len(sources)
    shapes = {"weights": (time, size), "actions": (time, num_actions), "best_run": (time, 3), "truth": (time, size)}
    for name, array in fields.items():
        _require_shape(name, array, shapes[name])
    contents = content.get("contents")
    return Record(
        tokens=tokens,
        layer=content["layer"],
        sublayer=content["sublayer"],
        head=content.get("head"),
        mechanism=content["mechanism"],
        sources=sources,
        side=content.get("side"),
        contents=None if contents is None else _contents_from_json(contents, time, size, arrays),
        **fields,
    )


def _contents_from_json(content: Json, time: int, size: int, arrays: list[str]) -> Contents:
    contents = Contents(**{name: _unpacked(part, arrays) for name, part in content.items()})
    depths = contents.at_least.shape[-1]
    shapes = {"height": (time,), "at_least": (time, depths), "positions": (time, depths, size)}
    for name, shape in shapes.items():
        _require_shape(name, getattr(contents, name), shape)
    if contents.symbols is not None:
        _require_shape("symbols", contents.symbols, (time, depths, contents.symbols.shape[-1]))
    return contents


def _require_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has a number that is NaN or infinite")


@dataclass(frozen=True)
class RecordedRun(Run):
    """A run with its recordings by name of their files."""

    recordings: Mapping[str, Recording]

    @property
    def examples(self) -> list[RecordedExample]:
        """The recorded examples and texts; an example of a split that several files hold counts once."""
        found: dict[object, RecordedExample] = {}
        for name, recording in self.recordings.items():
            for number, each in enumerate(recording.examples):
                found.setdefault((name, number) if each.example is None else (each.split, each.example), each)
        return list(found.values())


def read_recorded_run(folder: Path, name: str | None = None) -> RecordedRun:
    """Read a run folder with its recordings; see ``read_run``.

    Raises:
        StructattnError: the folder is not a run folder.
        DataError, SettingsError, CheckpointError: a file in it is damaged; the message names it.
    """
    run = read_run(folder, name)
    recordings = {path.stem: read_recording(path) for path in json_files(folder / "records")}
    return RecordedRun(**vars(run), recordings=recordings)


def read_recorded_runs(folders: Sequence[Path]) -> list[RecordedRun]:
    """Read run folders under distinct names; a folder given twice is read once."""
    return [read_recorded_run(folder, name) for folder, name in named_folders(folders)]

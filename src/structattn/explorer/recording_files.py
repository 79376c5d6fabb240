"""Files of recordings, with bounds within which reports and the explorer can show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from structattn.explorer.packed_arrays import ArrayReader, ArrayWriter, PackedArray
from structattn.explorer.recording import RECEPTIVE_FIELD, RecordedExample, Recording
from structattn.explorer.searched_text import RecordedBeamSearch
from structattn.loading.records import BOTTOM, Contents, Record, action_names
from structattn.report.runs import Run, json_files, named_folders, read_run
from structattn.settings.mechanisms import MECHANISMS
from structattn.support.errors import DataError, UsageError, quoted
from structattn.support.files import replace_file, write_atomically
from structattn.support.json_files import Shape, json_with_digest, load_json, without_digest
from structattn.support.reading import MAX_BYTES
from structattn.support.validation import first_problem
from structattn.tasks.loaded import Side

Json = dict[str, Any]
_Index = Annotated[int, Field(ge=0, le=10_000)]
_Texts = Annotated[list[str], Field(min_length=1, max_length=1_000_000)]


class _Contents(Shape):
    height: PackedArray
    at_least: PackedArray
    positions: PackedArray
    symbols: PackedArray | None = None


class _Record(Shape):
    side: Side | None = None
    layer: _Index
    sublayer: Literal["attention", "cross", "stack", "receptive-field", "source-receptive-field"]
    head: _Index | None = None
    mechanism: str
    queries: Literal["tokens", "source"]
    keys: Literal["tokens", "source"]
    bottom: bool
    weights: PackedArray
    action_names: list[str] = Field(default_factory=list)
    actions: PackedArray | None = None
    best_run: PackedArray | None = None
    prefix_actions: PackedArray | None = None
    prefix_tops: PackedArray | None = None
    truth: PackedArray | None = None
    contents: _Contents | None = None
    details: dict[str, PackedArray] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_sublayer(self) -> Self:
        if (self.mechanism == RECEPTIVE_FIELD) != self.sublayer.endswith("receptive-field"):
            raise ValueError(f"mechanism {quoted(self.mechanism, 40)} in sublayer {self.sublayer!r}")
        return self


class _BeamSearch(Shape):
    tokens: _Texts
    parents: PackedArray
    steps: PackedArray
    log_probabilities: PackedArray
    scores: PackedArray
    finished: PackedArray
    best: Annotated[int, Field(ge=0)]
    text: str


class _Example(Shape):
    split: str | None = None
    example: Annotated[int, Field(ge=0)] | None = None
    tokens: _Texts
    source: _Texts | None = None
    predicted: list[str | None]
    surprisal: PackedArray
    records: list[_Record]
    beam_search: _BeamSearch | None = None


class RecordingShape(Shape):
    """A recording of examples; the context of its validation is an ``ArrayReader``."""

    run: dict[str, Any]
    examples: list[_Example]


class _ArraysShape(Shape):
    arrays: list[str]


FORMAT_VERSION = 2
KIND = "recording"
ANY_NAME = "recording.json"  # in the digest: a file may be renamed
_OVER_SOURCE = ("cross", "source-receptive-field")  # sublayers of a decoder whose keys are the source


def write_recording(path: str | PathLike[str], recording: Recording) -> None:
    """Write a recording to a file, atomically.

    Raises:
        UsageError: the file or an array would be larger than 256 MiB, which is the most that is read.
        OSError: it cannot be written.
    """
    write_atomically(Path(path), _text_of(Path(path), recording))


def write_own_recording(path: Path, recording: Recording) -> None:
    """Write a recording into its run's folder; see ``write_recording`` and ``replace_file``."""
    replace_file(path, _text_of(path, recording))


def _text_of(path: Path, recording: Recording) -> str:
    text = json_with_digest(KIND, ANY_NAME, recording_to_json(recording), indent=None)
    if (size := len(text.encode())) > MAX_BYTES:
        raise UsageError(f"{path}: would have {size >> 20} MiB; expected at most 256: record fewer or shorter examples")
    return text


def recording_to_json(recording: Recording) -> Json:
    """Return the content of a file of a recording, without its digest."""
    arrays = ArrayWriter()
    return {
        "format_version": FORMAT_VERSION,
        "run": dict(recording.run),
        "examples": [_example_to_json(each, arrays) for each in recording.examples],
        "arrays": arrays.packed,
    }


def read_recording(path: str | PathLike[str]) -> Recording:
    """Read a recording.

    Raises:
        DataError: the file cannot be read, has changed since it was written, or is no recording of this version.
    """
    path = Path(path)
    return _recording_of(_content(path), path)


def read_recording_json(path: str | PathLike[str]) -> Json:
    """Read the content of a file of a recording as it stands, its arrays packed.

    Raises:
        DataError: as for ``read_recording``.
    """
    path = Path(path)
    content = _content(path)
    _recording_of(content, path)
    return content


def _content(path: Path) -> Json:
    if path.suffix.lower() == ".npz":
        raise DataError(path, "has arrays; expected a recording in JSON, from `structattn explore --save FILE.json`")
    content = load_json(path)
    if isinstance(content, dict) and (version := content.get("format_version")) != FORMAT_VERSION:
        raise DataError(
            path,
            f"has format_version {quoted(version, 20)}; expected {FORMAT_VERSION}: delete the file, and write records "
            "anew with `structattn evaluate` or `structattn explore --save`",
        )
    return without_digest(content, path, KIND, ANY_NAME)


def _recording_of(content: Json, path: Path) -> Recording:
    try:
        arrays = _ArraysShape.model_validate(content).arrays
        shape = RecordingShape.model_validate(content, context=ArrayReader(arrays))
    except ValidationError as error:
        raise DataError(path, first_problem(error)) from None
    try:
        return Recording(shape.run, tuple(map(_example_of, shape.examples)))
    except (KeyError, ValueError) as error:
        raise DataError(path, f"is no recording: {type(error).__name__}: {error}") from None


def _encoded(value: Any, arrays: ArrayWriter, without: Sequence[str] = ()) -> Any:
    """Return what JSON can hold in place of a value: fields that are None are left out, numbers of arrays are apart."""
    if isinstance(value, np.ndarray):
        return arrays.add(value)
    if is_dataclass(value):
        given = {field.name: getattr(value, field.name) for field in fields(value) if field.name not in without}
        return {name: _encoded(each, arrays) for name, each in given.items() if each is not None}
    return list(value) if isinstance(value, tuple) else value


def _example_to_json(example: RecordedExample, arrays: ArrayWriter) -> Json:
    content: Json = _encoded(example, arrays, without=("records",))
    return content | {"records": [_record_to_json(each, example, arrays) for each in example.records]}


def _record_to_json(record: Record, example: RecordedExample, arrays: ArrayWriter) -> Json:
    queries = "source" if record.side == "encoder" else "tokens"
    keys = "source" if record.sublayer in _OVER_SOURCE else queries
    names = record.action_names
    content = _encoded(record, arrays, without=("tokens", "sources", "details"))
    details = {name: _encoded(array, arrays) for name, array in record.details.items()}
    return {
        **content,
        "queries": queries,
        "keys": keys,
        "bottom": len(record.sources) > len(getattr(example, keys)),
        **({"action_names": names} if names else {}),
        **({"details": details} if details else {}),
    }


def _example_of(shape: _Example) -> RecordedExample:
    tokens, source = tuple(shape.tokens), None if shape.source is None else tuple(shape.source)
    surprisal: Any = shape.surprisal
    if surprisal.shape != (len(tokens),) or len(shape.predicted) != len(tokens):
        raise ValueError(f"expected predicted and surprisal for each of {len(tokens)} tokens")
    return RecordedExample(
        tokens=tokens,
        source=source,
        predicted=tuple(shape.predicted),
        surprisal=surprisal,
        records=tuple(_record_of(each, {"tokens": tokens, "source": source}) for each in shape.records),
        split=shape.split,
        example=shape.example,
        beam_search=None if shape.beam_search is None else _search_of(shape.beam_search),
    )


def _search_of(shape: _BeamSearch) -> RecordedBeamSearch:
    search = RecordedBeamSearch(**vars(shape) | {"tokens": tuple(shape.tokens)})
    nodes, parents = len(search.tokens), search.parents
    _require_shapes(search, dict.fromkeys(("parents", "steps", "log_probabilities", "scores", "finished"), (nodes,)))
    if parents[0] != -1 or (parents[1:] < 0).any() or (parents >= np.arange(nodes)).any():
        raise ValueError("the nodes of a beam search are no tree: expected each after its parent, the root first")
    if search.best >= nodes:
        raise ValueError(f"best is node {search.best} of {nodes}")
    return replace(search, finished=search.finished.astype(bool))


def _record_of(shape: _Record, texts: Mapping[str, tuple[str, ...] | None]) -> Record:
    given = vars(shape).copy()
    tokens, sources = texts[given.pop("queries")], texts[given.pop("keys")]
    if tokens is None or sources is None:
        raise ValueError("a record refers to a source that the example does not have")
    sources = (BOTTOM, *sources) if given.pop("bottom") else sources
    if given.pop("action_names") and shape.mechanism not in MECHANISMS:
        raise ValueError(
            f"a record has actions of {quoted(shape.mechanism, 40)}, which is not registered; expected its plugin: "
            "--plugin FILE.py, or import it first"
        )
    time, size = len(tokens), len(sources)
    if shape.contents is not None:
        given["contents"] = _contents_of(shape.contents, time, size)
    record = Record(tokens, sources=sources, **given)
    actions = 0 if record.actions is None else len(action_names(record.mechanism))
    shapes = {"weights": (time, size), "actions": (time, actions), "best_run": (time, 3), "truth": (time, size)}
    shapes |= {"prefix_actions": (time, actions), "prefix_tops": (time, 2)}
    _require_shapes(record, shapes)
    for name, array in record.details.items():
        if array.shape[:1] != (time,):
            raise ValueError(f"{name} has shape {array.shape}; expected ({time}, ..)")
    return record


def _contents_of(shape: _Contents, time: int, size: int) -> Contents:
    contents = Contents(**vars(shape))
    depths, symbols = contents.at_least.shape[-1], 0 if contents.symbols is None else contents.symbols.shape[-1]
    shapes = {"height": (time,), "at_least": (time, depths), "positions": (time, depths, size)}
    _require_shapes(contents, {**shapes, "symbols": (time, depths, symbols)})
    return contents


def _require_shapes(holder: object, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check the arrays among an object's fields; those that may be missing are None."""
    for name, shape in shapes.items():
        array = getattr(holder, name)
        if array is None:
            continue
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
        distinct: dict[object, RecordedExample] = {}
        for name, recording in self.recordings.items():
            for number, each in enumerate(recording.examples):
                distinct.setdefault((name, number) if each.example is None else (each.split, each.example), each)
        return list(distinct.values())


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

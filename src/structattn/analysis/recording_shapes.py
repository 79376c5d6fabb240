"""Fields of the files of recordings, with bounds within which reports and the explorer can show them."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from structattn.support.json_files import Shape

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

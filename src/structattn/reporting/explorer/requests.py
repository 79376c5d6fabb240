"""What the explorer's page may ask its server for: a recording of a text or example, with interventions."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from structattn.analysis.interventions import ForcedAction, HeadOff, Intervention
from structattn.support.errors import UsageError
from structattn.support.json_files import first_problem

MAX_CHARACTERS = 20_000  # of a text; recordings have at most 1,024 tokens
MAX_INTERVENTIONS = 64
_MAX_INDEX = 1 << 20

Index = Annotated[int, Field(ge=0, le=_MAX_INDEX)]
Side = Literal["encoder", "decoder"]


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class HeadOffRequest(_Request):
    """The fields of ``HeadOff``."""

    kind: Literal["head_off"]
    layer: Index
    head: Index
    sublayer: Literal["attention", "cross"] = "attention"
    side: Side | None = None


class ForcedActionRequest(_Request):
    """The fields of ``ForcedAction``."""

    kind: Literal["forced_action"]
    layer: Index
    position: Index
    action: Annotated[str, Field(max_length=32)]
    sublayer: Literal["attention", "stack"] = "attention"
    side: Side | None = None


class RecordRequest(_Request):
    """A text, or an example of a split; and interventions.

    Args:
        text: the text.
        target: the answer or translation that is given for it; None: it is searched for.
        example: the index of an example.
        split: its split.
        interventions: all apply.
    """

    text: Annotated[str, Field(max_length=MAX_CHARACTERS)] | None = None
    target: Annotated[str, Field(max_length=MAX_CHARACTERS)] | None = None
    example: Index | None = None
    split: Literal["train", "valid", "test", "gen"] = "test"
    interventions: Annotated[
        list[Annotated[HeadOffRequest | ForcedActionRequest, Field(discriminator="kind")]],
        Field(max_length=MAX_INTERVENTIONS),
    ] = []

    @model_validator(mode="after")
    def _check_text(self) -> Self:
        if (self.text is None) == (self.example is None):
            raise ValueError("expected either a text or an example")
        return self


def parse_request(body: bytes) -> RecordRequest:
    """Return a request from its JSON.

    Raises:
        UsageError: it is not JSON, or a field is missing, unknown or invalid; the message names the first one.
    """
    try:
        return RecordRequest.model_validate_json(body)
    except ValidationError as error:
        raise UsageError(first_problem(error)) from None


def interventions_of(request: RecordRequest) -> Sequence[Intervention]:
    """Return the interventions of a request."""
    found: list[Intervention] = []
    for each in request.interventions:
        fields = each.model_dump(exclude={"kind"})
        found.append(HeadOff(**fields) if isinstance(each, HeadOffRequest) else ForcedAction(**fields))
    return found

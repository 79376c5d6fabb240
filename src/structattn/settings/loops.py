"""Settings of looped transformers."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, model_validator

from structattn.settings.base import NumLayers, Settings

_MOST = 1_000
NumLoops = Annotated[int, Field(ge=1, le=_MOST)]


def _require_count(value: object) -> object:
    """Raise one error, not one for each kind of count."""
    if value == "log" or (type(value) is int and 1 <= value <= _MOST):
        return value
    raise ValueError(f"expected 'log' or a number from 1 to {_MOST}")


class LoopSettings(Settings):
    """Layers that are applied several times, with the same weights: those between a prelude and a coda."""

    count: Annotated[NumLoops | Literal["log"], BeforeValidator(_require_count)] = Field(
        default="log", description="how many times; log: factor × ⌈log₂(p + 1)⌉ times for p positions"
    )
    factor: NumLoops = Field(default=1, description="factor of count: log")
    maximum: NumLoops | None = Field(default=None, description="largest number of times with count: log; null: none")
    prelude: NonNegativeInt = Field(default=0, description="number of first layers that are applied once")
    coda: NonNegativeInt = Field(default=0, description="number of last layers that are applied once")
    injected: bool = Field(default=True, description="whether the embeddings are added before each repetition")

    @model_validator(mode="after")
    def _check_log(self) -> Self:
        if self.count != "log" and (self.factor != 1 or self.maximum is not None):
            raise ValueError(f"factor and maximum are for count: log; count is {self.count}")
        return self

    def require_fits(self, num_layers: NumLayers) -> None:
        """Raise ValueError unless a layer is left between prelude and coda."""
        if self.prelude + self.coda >= num_layers:
            raise ValueError(
                f"loops: prelude {self.prelude} and coda {self.coda} leave none of {num_layers} layers to repeat"
            )


def _from_count(value: object) -> object:
    return value if isinstance(value, dict | LoopSettings) or value is None else {"count": value}


Loops = Annotated[
    LoopSettings,
    BeforeValidator(_from_count, json_schema_input_type=LoopSettings | int | Literal["log"]),
]

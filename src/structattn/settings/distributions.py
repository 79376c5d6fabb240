"""Settings of the values that trials of a sweep draw, or take in turn."""

from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, field_validator, model_validator

from structattn.settings.base import OneOf, Settings


class _Interval(Settings):
    low: float = Field(description="lower end")
    high: float = Field(description="upper end")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is greater than high {self.high}")
        return self


class LogUniform(_Interval):
    """Log-uniform distribution between ``low`` and ``high``."""

    kind: Literal["log_uniform"] = "log_uniform"
    low: PositiveFloat = Field(description="lower end")
    high: PositiveFloat = Field(description="upper end")

    @field_validator("low", mode="before")
    @classmethod
    def _name_the_other_kind(cls, low: object) -> object:
        if isinstance(low, int | float) and low <= 0:
            raise ValueError(f"log_uniform, the default kind, needs more than 0, got {low}; `kind: uniform` takes any")
        return low


class Uniform(_Interval):
    """Uniform distribution between ``low`` and ``high``."""

    kind: Literal["uniform"]


class UniformInteger(_Interval):
    """Uniform distribution of integers from ``low`` to ``high``."""

    kind: Literal["integer"]
    low: int = Field(description="lower end, included")
    high: int = Field(description="upper end, included")


class Cycle(Settings):
    """Values that the trials of each cell take in turn: trial r has value r mod n."""

    kind: Literal["cycle"]
    values: tuple[int | float, ...] = Field(min_length=1, description="the values")


Interval = LogUniform | Uniform | UniformInteger
Distribution = Annotated[Interval | Cycle, OneOf("kind", "log_uniform")]

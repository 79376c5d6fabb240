"""Settings of schedules of the learning rate and of the temperature; the formulas are in `training/schedules.py`."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, Tag, model_validator

from structattn.settings.base import Settings, discriminated_by, from_name


class ConstantSchedule(Settings):
    """Constant learning rate."""

    kind: Literal["constant"] = "constant"


class PlateauSchedule(Settings):
    """Multiply the learning rate by ``factor`` after more than ``patience`` validations without improvement."""

    kind: Literal["plateau"] = "plateau"
    factor: float = Field(default=0.9, gt=0, lt=1, description="factor of each decay")
    patience: int = Field(default=5, ge=0, description="validations without improvement that are allowed")


class WarmupSchedule(Settings):
    """Linear warm-up over ``warmup_steps`` updates, then decay with the inverse square root of the updates."""

    kind: Literal["warmup"]
    warmup_steps: int = Field(default=4000, ge=1, description="number of warm-up updates")


class EndingSchedule(Settings):
    """Fields of the schedules that have an end."""

    total_steps: int | None = Field(
        default=None,
        ge=1,
        description="update of the end of the decay, 100,000 for the small data of You et al. (2020); null: the last "
        "update that max_updates or max_epochs allows",
    )
    end_learning_rate: float = Field(
        default=0.0, ge=0, description="learning rate after the decay; 1e-5 in You et al. (2020)"
    )
    warmup_steps: int = Field(default=0, ge=0, description="number of warm-up updates")

    @model_validator(mode="after")
    def _check_warmup(self) -> Self:
        if self.total_steps is not None and self.warmup_steps >= self.total_steps:
            raise ValueError(f"warmup_steps={self.warmup_steps}; expected less than total_steps={self.total_steps}")
        return self


class LinearSchedule(EndingSchedule):
    """Linear warm-up over ``warmup_steps`` updates, then linear decay until update ``total_steps``."""

    kind: Literal["linear"]


class CosineSchedule(EndingSchedule):
    """Linear warm-up over ``warmup_steps`` updates, then decay by half a cosine until update ``total_steps``."""

    kind: Literal["cosine"]


class WsdSchedule(EndingSchedule):
    """Warm-up, stable learning rate, and decay over the last ``decay_steps`` updates (WSD, Hu et al. 2024)."""

    kind: Literal["wsd"]
    decay_steps: int | None = Field(
        default=None, ge=1, description="number of updates of the decay; null: a fifth of total_steps"
    )
    decay: Literal["linear", "sqrt"] = Field(
        default="linear",
        description="shape of the decay after a part x of it; linear: 1 - x, sqrt: 1 - sqrt(x) (Hägele et al. 2024)",
    )

    @model_validator(mode="after")
    def _check_decay(self) -> Self:
        decay = self.decay_steps or 0
        if self.total_steps is not None and self.warmup_steps + decay > self.total_steps:
            raise ValueError(
                f"warmup_steps={self.warmup_steps} and decay_steps={decay}; expected a sum of at most "
                f"total_steps={self.total_steps}"
            )
        return self


class TemperatureSchedule(Settings):
    """Exponential decay of the temperature from ``start`` to ``end``, constant before and after (Jang et al. 2017)."""

    start: float = Field(default=1.0, gt=0, description="temperature at the beginning")
    end: float = Field(default=0.05, gt=0, description="temperature after the decay")
    after: int = Field(default=0, ge=0, description="number of updates before the decay")
    updates: int = Field(ge=1, description="number of updates of the decay")


_Schedule = Annotated[
    Annotated[ConstantSchedule, Tag("constant")]
    | Annotated[CosineSchedule, Tag("cosine")]
    | Annotated[LinearSchedule, Tag("linear")]
    | Annotated[PlateauSchedule, Tag("plateau")]
    | Annotated[WarmupSchedule, Tag("warmup")]
    | Annotated[WsdSchedule, Tag("wsd")],
    discriminated_by("kind", default="plateau"),
]
Schedule = Annotated[_Schedule, BeforeValidator(from_name, json_schema_input_type=_Schedule | str)]

"""Settings of optimizers and of their schedules, with the formulas of ``torch.optim``."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from structattn.settings.base import OneOf, Positive, Probability, Settings, of_kind


class AdamWSettings(Settings):
    """Adam, with decoupled weight decay as in AdamW (Loshchilov & Hutter 2019)."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: PositiveFloat = Field(default=0.001, description="learning rate; with warm-up, its maximum")
    betas: tuple[Probability, Probability] = Field(
        default=(0.9, 0.999), description="decay rates of the averages of gradients and squared gradients"
    )
    epsilon: PositiveFloat = Field(default=1e-8, description="added to the denominator")
    weight_decay: NonNegativeFloat = Field(
        default=0.0, description="weight decay of all parameters, multiplied by the learning rate"
    )


class SgdSettings(Settings):
    """Stochastic gradient descent with momentum."""

    kind: Literal["sgd"]
    learning_rate: PositiveFloat = Field(default=0.001, description="learning rate; with warm-up, its maximum")
    momentum: Probability = Field(default=0.9, description="momentum; 0: none")
    dampening: float = Field(default=0.0, ge=0, le=1, description="1 - weight of a gradient in the momentum")
    nesterov: bool = Field(default=False, description="Nesterov momentum; needs momentum without dampening")
    weight_decay: NonNegativeFloat = Field(
        default=0.0, description="L2 penalty: its product with a weight is added to the gradient"
    )

    @model_validator(mode="after")
    def _check_nesterov(self) -> Self:
        if self.nesterov and (not self.momentum or self.dampening):
            raise ValueError(
                f"nesterov=true needs momentum without dampening; got momentum={self.momentum} and "
                f"dampening={self.dampening}"
            )
        return self


class RmspropSettings(Settings):
    """RMSprop: gradients divided by the root of the average of their squares (Tieleman & Hinton 2012)."""

    kind: Literal["rmsprop"]
    learning_rate: PositiveFloat = Field(default=0.01, description="learning rate; with warm-up, its maximum")
    alpha: Probability = Field(default=0.99, description="decay rate of the average of squared gradients")
    epsilon: PositiveFloat = Field(default=1e-8, description="added to the denominator")
    momentum: Probability = Field(default=0.0, description="momentum; 0: none")
    centered: bool = Field(default=False, description="whether the mean of the gradients is subtracted")
    weight_decay: NonNegativeFloat = Field(
        default=0.0, description="L2 penalty: its product with a weight is added to the gradient"
    )


class AdafactorSettings(Settings):
    """Adafactor: Adam with second moments of rows and columns only (Shazeer & Stern 2018); not with fsdp."""

    kind: Literal["adafactor"]
    learning_rate: PositiveFloat = Field(
        default=0.01,
        description="maximum of the relative step size, min(learning rate, 1 / sqrt(update)), which is multiplied by "
        "the root mean square of a parameter",
    )
    beta2_decay: float = Field(default=-0.8, lt=0, description="decay rate of second moments: 1 - t ** beta2_decay")
    epsilon: tuple[NonNegativeFloat | None, NonNegativeFloat] = Field(
        default=(None, 0.001),
        description="minimum of squared gradients, null: machine epsilon; and of the root mean square of a parameter",
    )
    clip_threshold: float = Field(default=1.0, ge=1, description="maximum of the root mean square of an update")
    weight_decay: NonNegativeFloat = Field(
        default=0.0, description="weight decay of all parameters, multiplied by the learning rate"
    )


class MuonSettings(Settings):
    """Muon: orthogonalized momentum for the matrices of layers (Jordan 2024), AdamW for the rest; not with fsdp."""

    kind: Literal["muon"]
    learning_rate: PositiveFloat = Field(default=0.001, description="learning rate of matrices")
    momentum: Probability = Field(default=0.95, description="momentum")
    nesterov: bool = Field(default=True, description="Nesterov momentum")
    newton_schulz_steps: int = Field(
        default=5, ge=1, lt=100, description="steps of the Newton-Schulz iteration, which computes in bfloat16"
    )
    adjust_learning_rate: Literal["original", "match_rms_adamw"] = Field(
        default="original",
        description="factor of the learning rate of a matrix of m rows and n columns; original: sqrt(max(1, m / n)), "
        "match_rms_adamw: 0.2 sqrt(max(m, n)), with which the learning rates of AdamW fit",
    )
    weight_decay: NonNegativeFloat = Field(
        default=0.1, description="weight decay of matrices, multiplied by the learning rate"
    )
    adamw: AdamWSettings = Field(
        default=AdamWSettings(),
        description="AdamW for embeddings, the output layer and all parameters that are no matrices; the schedule "
        "multiplies both learning rates by the same factor",
    )


OptimizerSettings = AdamWSettings | SgdSettings | RmspropSettings | AdafactorSettings | MuonSettings

Optimizer = Annotated[OptimizerSettings, OneOf("kind", "adamw", of_kind)]


class ConstantSchedule(Settings):
    """Constant learning rate."""

    kind: Literal["constant"] = "constant"


class PlateauSchedule(Settings):
    """Multiply the learning rate by ``factor`` after more than ``patience`` validations without improvement."""

    kind: Literal["plateau"] = "plateau"
    factor: float = Field(default=0.9, gt=0, lt=1, description="factor of each decay")
    patience: NonNegativeInt = Field(default=5, description="validations without improvement that are allowed")


class WarmupSchedule(Settings):
    """Linear warm-up over ``warmup_steps`` updates, then decay with the inverse square root of the updates."""

    kind: Literal["warmup"]
    warmup_steps: Positive = Field(default=4000, description="number of warm-up updates")


class EndingSchedule(Settings):
    """Fields of the schedules that have an end."""

    total_steps: Positive | None = Field(
        default=None,
        description="update of the end of the decay, 100,000 for the small data of You et al. (2020); null: the last "
        "update that max_updates or max_epochs allows",
    )
    end_learning_rate: NonNegativeFloat = Field(
        default=0.0, description="learning rate after the decay; 1e-5 in You et al. (2020)"
    )
    warmup_steps: NonNegativeInt = Field(default=0, description="number of warm-up updates")

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
    decay_steps: Positive | None = Field(
        default=None, description="number of updates of the decay; null: a fifth of total_steps"
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

    start: PositiveFloat = Field(default=1.0, description="temperature at the beginning")
    end: PositiveFloat = Field(default=0.05, description="temperature after the decay")
    after: NonNegativeInt = Field(default=0, description="number of updates before the decay")
    updates: Positive = Field(description="number of updates of the decay")


Schedule = Annotated[
    ConstantSchedule | CosineSchedule | LinearSchedule | PlateauSchedule | WarmupSchedule | WsdSchedule,
    OneOf("kind", "plateau", of_kind),
]

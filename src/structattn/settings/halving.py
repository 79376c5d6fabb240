"""Settings of successive halving: how far all trials of a cell are trained, and how many of them go on."""

import itertools
import math
from fractions import Fraction
from typing import Annotated, Self

from pydantic import Field, model_validator

from structattn.settings.base import Settings
from structattn.settings.budget import Budget, Unit


class Halving(Settings):
    """Successive halving (Jamieson & Talwalkar 2016): at each rung, the best trials of a cell by validation go on."""

    after: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        min_length=1, description="rungs, ascending: the epochs or updates after which trials are compared"
    )
    unit: Unit = Field(default="epochs", description="unit of the rungs")
    keep: float = Field(default=0.5, gt=0, le=1, description="share of trials that goes on at each rung, rounded up")
    at_least: int = Field(default=1, ge=1, description="number of trials that go on at each rung, if there are so many")

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The rungs."""
        return tuple(Budget(count, self.unit) for count in self.after)

    def survivors(self, count: int) -> int:
        """Return how many of ``count`` trials go on at a rung."""
        share = Fraction(str(self.keep))  # the decimal number that was written: 0.07 of 100 are 7
        return min(count, max(self.at_least, math.ceil(share * count)))

    @model_validator(mode="after")
    def _check_rungs(self) -> Self:
        for before, rung in itertools.pairwise(self.after):
            if rung <= before:
                raise ValueError(f"after: {rung} follows {before}; expected ascending numbers of {self.unit}")
        return self

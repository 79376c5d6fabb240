"""Amounts of training."""

from dataclasses import dataclass
from typing import Literal

Unit = Literal["epochs", "updates"]


@dataclass(frozen=True)
class Budget:
    """An amount of training.

    Args:
        count: the number of completed epochs or updates, at least 1.
        unit: which of the two.
    """

    count: int
    unit: Unit

    def __str__(self) -> str:
        return f"{self.count} {self.unit if self.count > 1 else self.unit.removesuffix('s')}"

"""What a sweep's results are held against, numbers that were published and claims, and how they are drawn."""

from typing import Annotated, Literal, Self

from pydantic import Field, Tag, model_validator

from structattn.settings.base import Settings, discriminated_by

LENGTH = "length"
"""What a figure is drawn along where it is no axis of the grid."""

SCORES = (
    "cross_entropy",
    "lower_bound",
    "cross_entropy_difference",
    "perplexity",
    "accuracy",
    "accuracy_greedy",
    "precision",
    "recall",
    "precision_of_symbols",
    "recall_of_symbols",
    "BLEU",
    "chrF2",
    "TER",
)
"""What a run is scored by on a split: what stands after the point in SPLIT.NAME."""

CONTRASTIVE = "contrastive"
"""What stands before the point in the place of a split: accuracies on contrastive pairs, by type of error."""

CellPattern = dict[str, str | tuple[str, ...]]


class ScoreName(Settings):
    """Which number of a cell is meant."""

    score: str = Field(
        default="validation",
        pattern=r"^(validation|\w+\.\w+)$",
        description="validation, SPLIT.NAME as test.accuracy, or contrastive.TYPE of error",
    )
    of: Literal["selected", "mean", "least", "greatest"] = Field(
        default="selected", description="of the trial that validation selects, or over all trials of the cell"
    )


class PublishedValue(Settings):
    """The number of one cell, as printed."""

    cell: dict[str, str] = Field(description="axis -> name of its value, for every axis of the grid")
    value: float
    deviation: float | None = Field(default=None, ge=0, description="the standard deviation printed beside it")


class Published(ScoreName):
    """A table, or a part of one."""

    source: str = Field(description="paper and table")
    unit: float = Field(default=1.0, gt=0, description="what 1 in print means; 0.01 for percent")
    rounding: float = Field(default=0.0, ge=0, description="half a unit of the last digit in print")
    values: tuple[PublishedValue, ...]


class Curves(ScoreName):
    """A picture: a score along one axis of the grid, or by length; a curve for each combination of the other axes."""

    kind: Literal["curves"] = "curves"
    along: str = Field(
        description="the axis, whose values stand from left to right in the recipe's order; or `length`, that of the "
        "strings of the selected trial's split"
    )
    panels: str | None = Field(default=None, description="an axis, each of whose values has a panel of its own")
    says: str = Field(description="the caption")

    @model_validator(mode="after")
    def _lengths_are_of_a_split(self) -> Self:
        if self.along == LENGTH and (self.score == "validation" or self.of != "selected"):
            raise ValueError("scores by length are those of a split, of the selected trial: SPLIT.NAME, of: selected")
        return self


class Dependencies(Settings):
    """A picture: which inputs the predictions of an example depend on, in truth and in the selected trials of cells."""

    kind: Literal["dependencies"]
    split: str = Field(default="test", description="of the example, its first")
    cell: CellPattern = Field(default={}, description="axis -> a value, or a list; of every cell that matches")
    says: str = Field(description="the caption")


Figure = Annotated[
    Annotated[Curves, Tag("curves")] | Annotated[Dependencies, Tag("dependencies")],
    discriminated_by("kind", default="curves"),
]


class Claim(ScoreName):
    """Something that should hold: of the cells that match, against a number or against their like."""

    says: str = Field(description="the claim in words")
    cell: CellPattern = Field(
        default={}, description="axis -> a value, or a list; every cell that matches is held to it"
    )
    at_most: float | None = None
    at_least: float | None = None
    below: dict[str, str] | None = Field(default=None, description="changes of the cell that give the one to be below")
    above: dict[str, str] | None = None

    @model_validator(mode="after")
    def _one_relation(self) -> Self:
        given = [name for name in ("at_most", "at_least", "below", "above") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of at_most, at_least, below, above; found {', '.join(given) or 'none'}")
        return self

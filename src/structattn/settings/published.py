"""Settings of the published numbers, claims and figures of a sweep."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from structattn.settings.base import OneOf, Settings

LENGTH = "length"
"""The x axis of a figure that shows scores by length instead of an axis of the grid."""

EPOCH = "epoch"
"""The x axis of a figure that shows validation scores during training."""

SCORES = (
    "cross_entropy",
    "lower_bound",
    "cross_entropy_difference",
    "perplexity",
    "pseudo_perplexity",
    "accuracy",
    "accuracy_greedy",
    "precision",
    "recall",
    "precision_of_symbols",
    "recall_of_symbols",
    "BLEU",
    "chrF2",
    "TER",
    "full_match",
    "full_match_wrong",
    "probability",
    "conditional_cross_entropy",
    "log_ratio",
    "first_word",
    "first_word_wrong",
    "first_word_probability",
    "first_word_probability_wrong",
    "main_verb",
    "main_verb_wrong",
    "main_verb_sampled",
    "main_verb_sampled_wrong",
    "accuracy_within",
    "accuracy_beyond",
    "members_within",
    "members_beyond",
    "members_difference_within",
    "members_difference_beyond",
)
"""Scores of a split, NAME in SPLIT.NAME. Those of recognition are within the lengths of training and beyond them:
accuracy; cross-entropy of members in nats per symbol, and its difference from the lower bound."""

COMPARISON, CONTRASTIVE, CHUNKING, PARSING, NEIGHBOURS, BLIMP, SYNTAXGYM, EXTRACTION = ANALYSES = (
    "comparison",
    "contrastive",
    "chunking",
    "parsing",
    "neighbours",
    "blimp",
    "syntaxgym",
    "extraction",
)
"""Replace the name of a split: accuracy on contrastive pairs by type of error, contrastive.TYPE; differences in BLEU
from a base run by bin of sentences, after `structattn compare`, comparison.reference_length_5_of_5; scores of
`structattn evaluate --suite chunking`, chunking.f1, or chunking.syntactic_f1 of one of two streams; of `--suite trees`,
parsing.f1; of `structattn inspect --tags`, neighbours.source_agreement; of `evaluate --suite blimp`, accuracy on all
pairs, blimp.all, or on those of a field, phenomenon or paradigm; of `evaluate --suite syntaxgym` on several suites,
syntaxgym.mean_of_suites or of a circuit; and of `structattn extract`, extraction.exact, the share of runs with an exact
automaton."""

CellPattern = dict[str, str | tuple[str, ...]]


class ScoreName(Settings):
    """A score of a cell."""

    score: str = Field(
        default="validation",
        pattern=r"^(validation|\w+\.\w[\w.]*)$",
        description="validation, SPLIT.NAME such as test.accuracy, or contrastive.TYPE with a type of error, or "
        "comparison.NAME, chunking.NAME, parsing.NAME, neighbours.NAME, blimp.NAME, syntaxgym.NAME or extraction.NAME",
    )
    statistic: Literal["selected", "mean", "min", "max", "share"] = Field(
        default="selected",
        description="score of the trial with the best validation score, or a statistic of all trials of the cell; "
        "share: share of the trials whose score is at most `within`",
    )
    within: float | None = Field(default=None, description="largest score of the trials that a share counts")

    @property
    def split(self) -> str:
        """The split or analysis of the score; validation: that of the validation score."""
        return self.score.partition(".")[0]

    @property
    def name(self) -> str:
        """The name of the score in its split, which may have dots: a type of error is the path of a suite."""
        return self.score.partition(".")[2]

    @model_validator(mode="after")
    def _check_within(self) -> Self:
        if (self.statistic == "share") != (self.within is not None):
            raise ValueError("`within` belongs to statistic: share; expected both or neither")
        return self


class PublishedConfiguration(Settings):
    """The configuration behind published numbers, as far as a cell beside them may differ from it."""

    settings: dict[str, Any] = Field(
        default={},
        description="path.to.field -> value, also of `prepare`; a number is marked as one of a different configuration "
        "if its cell has another value",
    )
    differences: tuple[str, ...] = Field(
        default=(), description="further differences from the cells, which settings cannot express"
    )


class PublishedValue(PublishedConfiguration):
    """Published number of one cell, and its configuration where it differs from that of the table."""

    cell: dict[str, str] = Field(description="axis -> name of its value, for every axis of the grid")
    value: float = Field(description="the number as printed")
    deviation: NonNegativeFloat | None = Field(default=None, description="the published standard deviation")


class PublishedTable(ScoreName, PublishedConfiguration):
    """Published table, or a part of one, with the configuration behind it."""

    settings: dict[str, Any] = Field(
        min_length=1,
        description="as for a single number, here for all; at least one setting that identifies the experiment",
    )

    source: str = Field(description="paper and table")
    unit: PositiveFloat = Field(default=1.0, description="unit of the printed numbers; 0.01 for percent")
    rounding: NonNegativeFloat = Field(default=0.0, description="half a unit of the last printed digit")
    values: tuple[PublishedValue, ...] = Field(description="the numbers")


class Curves(ScoreName):
    """Figure of a score along an axis of the grid or by length, one curve for each combination of the other axes."""

    kind: Literal["curves"] = "curves"
    x_axis: str = Field(
        description="axis of the grid, its values in the order of the recipe; or, for the selected trial and, thin, "
        "for the others, `length`, the string length in the split, or `epoch`, the epochs of training"
    )
    panels: str | None = Field(default=None, description="axis of the grid with one panel for each value; null: none")
    caption: str = Field(description="caption")

    @model_validator(mode="after")
    def _check_score(self) -> Self:
        if self.x_axis == LENGTH and (self.score == "validation" or self.statistic != "selected"):
            raise ValueError("x_axis: length needs score: SPLIT.NAME and statistic: selected")
        if self.x_axis == EPOCH and (self.score != "validation" or self.statistic != "selected"):
            raise ValueError("x_axis: epoch needs score: validation and statistic: selected")
        return self


class CellFigure(Settings):
    """Base class of figures of what the selected trials of some cells do on a split."""

    split: str = Field(default="test", description="split that is shown")
    cell: CellPattern = Field(default={}, description="axis -> value or list of values; all matching cells are shown")
    caption: str = Field(description="caption")


class Dependencies(CellFigure):
    """Figure of the inputs on which each prediction of an example depends, true and by the selected trials."""

    kind: Literal["dependencies"]


class StackMaps(CellFigure):
    """Figure for each stack of the selected trials: its actions and readings on an example of the split."""

    kind: Literal["stack_maps"]


class Locality(CellFigure):
    """Figure of how far from a position each head of the selected trials attends (You et al. 2020, figure 2)."""

    kind: Literal["locality"]


class DifferencesByBin(CellFigure):
    """Figure of differences in BLEU from a base cell, by reference length and off-diagonality (You et al. 2020)."""

    kind: Literal["differences_by_bin"]
    base: dict[str, str] = Field(description="axis -> value, for every axis of the grid, of the cell compared with")


Figure = Annotated[Curves | Dependencies | StackMaps | Locality | DifferencesByBin, OneOf("kind", "curves")]


class Claim(ScoreName):
    """Expected relation between a score of each matching cell and a constant or the score of another cell."""

    statistic: Literal["selected", "mean", "min", "max", "share"] = Field(
        default="mean",
        description="mean of all trials of the cell, judged over their seeds; share: share of the trials whose score "
        "is at most `within`; the others are one number, of which no claim can be judged",
    )
    description: str = Field(description="the claim in words")
    cell: CellPattern = Field(
        default={}, description="axis -> value or list of values; the claim is checked for all matching cells"
    )
    at_most: float | None = Field(default=None, description="upper bound")
    at_least: float | None = Field(default=None, description="lower bound")
    below: dict[str, str] | None = Field(
        default=None, description="axis -> value of the cell with a higher score; other axes as in the matching cell"
    )
    above: dict[str, str] | None = Field(default=None, description="the same for the cell with a lower score")
    margin: float = Field(
        default=0.0,
        description="least difference from the score of the other cell; below zero: by how much it may be missed",
    )

    @model_validator(mode="after")
    def _check_relation(self) -> Self:
        given = [name for name in ("at_most", "at_least", "below", "above") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"expected one of at_most, at_least, below, above; found {', '.join(given) or 'none'}")
        if self.margin and self.below is None and self.above is None:
            raise ValueError("`margin` belongs to below or above; expected one of these with it")
        return self

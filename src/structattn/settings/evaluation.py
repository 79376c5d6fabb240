"""How a run is scored and used, where nobody says otherwise."""

from typing import Literal

from pydantic import Field

from structattn.settings.base import Settings


class EvaluationSettings(Settings):
    """Which weights are taken, and how translations are looked for. It has no part in training."""

    checkpoint: str = Field(
        default="best",
        pattern=r"^(best|last)(-[1-9][0-9]{0,3})?$",
        description="best, last, or the mean of the weights of K of them: best-K, last-K",
    )
    search: Literal["fairseq", "you-2020", "dusell-chiang-2024"] = Field(
        default="fairseq", description="how hypotheses are pruned and ranked"
    )
    beam: int = Field(default=4, ge=1, description="hypotheses kept; 1 is greedy")
    length_ratio: float = Field(default=1.0, ge=0, description="target tokens allowed for each of the source")
    length_extra: int = Field(default=50, ge=0, description="target tokens allowed besides")
    length_most: int | None = Field(default=None, ge=1, description="target tokens allowed in any case; None: no end")
    unknown: Literal["keep", "copy", "spell"] | None = Field(
        default=None,
        description="what stands for words that the vocabulary lacks: <unk>, the attended source word, a spelling; "
        "None: a spelling where the model has learnt to spell, else <unk>",
    )

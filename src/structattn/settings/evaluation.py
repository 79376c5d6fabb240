"""How a run is scored and used, where nobody says otherwise."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from structattn.settings.base import Settings
from structattn.support.errors import UsageError

BleuTokenizer = Literal["13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "none"]


class EvaluationSettings(Settings):
    """Which weights are taken, and how translations are looked for.

    It has no part in what is trained, but for ``bleu_tokenizer`` where a run is selected by BLEU; a run keeps the
    checkpoints that it names.
    """

    checkpoint: str = Field(
        default="best",
        pattern=r"^(best|last)(-[1-9][0-9]{0,3})?$",
        description="best, last, or the mean of the weights of K of them: best-K, last-K; a run keeps the K best",
    )
    search: Literal["fairseq", "you-2020", "dusell-chiang-2024"] = Field(
        default="fairseq", description="how hypotheses are pruned and ranked"
    )
    beam_size: int = Field(default=4, ge=1, description="hypotheses kept; 1 is greedy")
    length_penalty: float | None = Field(
        default=None,
        ge=0,
        description="of the length that log p is divided by; None: 0.6 (you-2020) or 1 (fairseq), as published",
    )
    max_length_ratio: float = Field(default=1.0, ge=0, description="target tokens allowed for each of the source")
    max_length_offset: int = Field(default=50, ge=0, description="target tokens allowed besides")
    max_length: int | None = Field(default=None, ge=1, description="target tokens allowed in any case; None: no end")
    unknown_words: Literal["keep", "copy", "spell"] | None = Field(
        default=None,
        description="what stands for words that the vocabulary lacks: <unk>, the attended source word, a spelling; "
        "None: a spelling where the model has learnt to spell, else <unk>",
    )
    bleu_tokenizer: BleuTokenizer = Field(default="13a", description="how sacrebleu parts words when a run is scored")

    @property
    def best_checkpoints(self) -> int:
        """How many of the best checkpoints it takes to score a run so; 1 at least."""
        which, _, count = self.checkpoint.partition("-")
        return int(count or 1) if which == "best" else 1

    @property
    def last_checkpoints(self) -> int:
        """How many of the newest it takes; 1 at least."""
        which, _, count = self.checkpoint.partition("-")
        return int(count or 1) if which == "last" else 1

    def changed(self, values: Mapping[str, Any]) -> Self:
        """These settings with other values of some fields; another search has its own exponent where none is given.

        Raises:
            UsageError: a value is impossible, or does not suit the others.
        """
        try:
            own = {"length_penalty": None} if values.get("search", self.search) != self.search else {}
            return type(self).model_validate(self.model_dump() | own | dict(values))
        except ValidationError as error:
            told = (
                (".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, ")) for each in error.errors()
            )
            raise UsageError("; ".join(": ".join(filter(None, parts)) for parts in told)) from None

    @model_validator(mode="after")
    def _the_rule_has_an_exponent(self) -> Self:
        if self.length_penalty is not None and self.search == "dusell-chiang-2024":
            raise ValueError("length_penalty: dusell-chiang-2024 divides by the length itself; expected none")
        return self

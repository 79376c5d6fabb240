"""Settings of evaluation and translation."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, ValidationError, model_validator
from pydantic_core import ErrorDetails

from structattn.settings.base import Positive, Seed, Settings, hint_for_unknown, words_of
from structattn.support.errors import UsageError

BleuTokenizer = Literal["13a", "intl", "zh", "char", "ja-mecab", "ko-mecab", "none"]


class EvaluationSettings(Settings):
    """Default checkpoint and beam search of a run.

    Training is not affected, except that it keeps the checkpoints needed here, and that ``bleu_tokenizer`` also applies
    to the selection of checkpoints by BLEU.
    """

    checkpoint: str = Field(
        default="best",
        pattern=r"^(best|last)(-[1-9][0-9]{0,3})?$",
        description="best, last, or best-K, last-K: the mean of the weights of K checkpoints; a run keeps its K best",
    )
    dropout: bool = Field(
        default=False,
        description="compute scores with dropout active, as the code of Li et al. (2024) does; for transductions",
    )
    mask_seed: Seed = Field(
        default=0, description="random seed of the masks on which masked language models are scored"
    )
    pseudo_perplexity_examples: NonNegativeInt | None = Field(
        default=1000,
        description="number of sentences or windows, evenly spaced, whose pseudo-perplexity masked language models get "
        "(Salazar et al. 2020), one forward pass for each token; null: all",
    )
    search: Literal["fairseq", "gnmt", "vaswani-2017", "you-2020", "dusell-chiang-2024"] = Field(
        default="fairseq", description="rules by which beam search prunes and ranks hypotheses"
    )
    beam_size: int = Field(default=4, ge=1, le=1000, description="number of hypotheses; 1: greedy search")
    length_penalty: NonNegativeFloat | None = Field(
        default=None,
        description="exponent of the length by which log p is divided, or of (5 + length) / 6 with gnmt, vaswani-2017 "
        "and you-2020; null: 0.2 (gnmt), 0.6 (vaswani-2017, you-2020) or 1 (fairseq)",
    )
    max_length_ratio: float = Field(default=1.0, ge=0, le=1000, description="maximum target length per source token")
    max_length_offset: NonNegativeInt = Field(
        default=50, description="added to max_length_ratio times the source length"
    )
    max_length: Positive | None = Field(default=None, description="maximum target length in tokens; null: no limit")
    unknown_words: Literal["keep", "copy", "spell"] | None = Field(
        default=None,
        description="output for a predicted <unk>: <unk> itself (keep), the attended source word (copy) or a spelling "
        "(spell); null: spell if the model has a spelling decoder, else keep",
    )
    constrained: bool | None = Field(
        default=None,
        description="for parsers: whether the beam holds only beginnings of trees over the words of the sentence; else "
        "malformed outputs are repaired; null: true if the data have level word",
    )
    bleu_tokenizer: BleuTokenizer = Field(default="13a", description="tokenizer of sacrebleu")

    def num_checkpoints(self, which: Literal["best", "last"]) -> int:
        """Number of best or of latest checkpoints to keep for evaluation, at least 1."""
        name, _, count = self.checkpoint.partition("-")
        return int(count or 1) if name == which else 1

    def changed(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with other values of some fields.

        Another ``search`` resets ``length_penalty`` to its default, unless a new value is given.

        Raises:
            UsageError: a value is invalid, alone or in combination with the others.
        """
        try:
            own = {"length_penalty": None} if values.get("search", self.search) != self.search else {}
            return type(self).model_validate(self.model_dump() | own | dict(values))
        except ValidationError as error:
            raise UsageError("; ".join(map(_problem, error.errors()))) from None

    @model_validator(mode="after")
    def _check_length_penalty(self) -> Self:
        if self.length_penalty is not None and self.search == "dusell-chiang-2024":
            raise ValueError("length_penalty: the search dusell-chiang-2024 has a fixed length penalty; expected null")
        return self


def _problem(error: ErrorDetails) -> str:
    """Return what is wrong with a field, with its path in the settings of a run."""
    path = ".".join(("evaluation", *map(str, error["loc"])))
    if error["type"] == "extra_forbidden":
        return f"{path}: {words_of(error)}{hint_for_unknown(EvaluationSettings, str(error['loc'][-1]), error['loc'])}"
    given = "" if isinstance(error["input"], dict) else f", got {error['input']!r}"
    return f"{path}: {words_of(error)}{given}"

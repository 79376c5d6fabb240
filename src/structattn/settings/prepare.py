"""Data that are made or coded, as settings: what a sweep prepares for its trials."""

from typing import Annotated, Literal, Self

from pydantic import Field, Tag

from structattn.settings.base import Settings, discriminated_by

Lengths = tuple[int, int]


class Drawn(Settings):
    """Data that are drawn at random."""

    seed: int | None = Field(default=None, ge=0, description="of what is drawn; None: that of the trial")

    def seeded(self, trial_seed: int) -> Self:
        """The same, with a seed in any case."""
        return self.model_copy(update={"seed": trial_seed}) if self.seed is None else self


class FormalLanguageData(Drawn):
    """Strings of a formal language; the defaults are the sizes of DuSell & Chiang (2024, section 6)."""

    kind: Literal["formal_language"] = "formal_language"
    language: str = Field(description="its name, as `structattn list` shows it")
    reading: Literal["faithful", "reference"] = "faithful"
    train: int = Field(default=10_000, ge=1, description="training strings")
    valid: int = Field(default=1_000, ge=1, description="validation strings")
    test_per_length: int = Field(default=100, ge=1, description="test strings of each length")
    train_lengths: Lengths = Field(default=(40, 80), description="least and greatest length of training strings")
    test_lengths: Lengths = Field(default=(40, 100), description="least and greatest length of test strings")
    group: int = Field(default=10, ge=1, description="neighbouring strings of one length, so that batches need no pads")


class TransductionPairs(Drawn):
    """Pairs of a transduction; the defaults are the sizes of Li et al. (2024, section 4.2)."""

    kind: Literal["transduction"]
    transduction: str = Field(description="its name, as `structattn list` shows it")
    train_lengths: Lengths = Field(default=(1, 40), description="least and greatest length of x in training")
    test_lengths: Lengths = Field(default=(41, 100), description="least and greatest length of x in the test set")
    valid_per_length: int = Field(default=16, ge=1, description="validation pairs of each length")
    test_per_length: int = Field(default=512, ge=1, description="test pairs of each length")


TextFiles = Annotated[
    tuple[str, ...], Field(min_length=1, max_length=2, description="source and target, line for line; or one TSV")
]


class ParallelText(Settings):
    """Text in two languages, as `structattn prepare parallel` codes it; with its defaults."""

    kind: Literal["parallel"]
    train: TextFiles
    valid: TextFiles
    test: TextFiles | None = None
    level: Literal["bpe", "sentencepiece-bpe", "sentencepiece-unigram", "word", "character", "byte"] = "bpe"
    joint: bool = Field(default=True, description="one set of subwords and one vocabulary for both sides")
    size: int = Field(default=32_000, ge=0, description="merges to learn (bpe), or pieces (sentencepiece)")
    threshold: int = Field(default=0, ge=0, description="subwords rarer than this on a side are parted there")
    marker: Literal["end", "start", "continuation", "none"] = Field(default="end", description="of words, for bpe")
    nfkc: bool = True
    lowercase: bool = False
    max_characters: int | None = Field(default=None, ge=1, description="drop pairs with a longer side")
    max_ratio: float | None = Field(
        default=None, ge=1, description="drop training pairs with a side so many times longer"
    )
    drop_full_stops: bool = Field(default=False, description="drop pairs of which a side is a full stop alone")
    sample: int | None = Field(default=None, ge=1, description="keep so many training pairs, drawn at random")
    sample_seed: int = Field(default=123, ge=0)

    @property
    def splits(self) -> dict[str, tuple[str, ...]]:
        """Split -> its files."""
        return {"train": self.train, "valid": self.valid} | ({} if self.test is None else {"test": self.test})


Prepare = Annotated[
    Annotated[FormalLanguageData, Tag("formal_language")]
    | Annotated[TransductionPairs, Tag("transduction")]
    | Annotated[ParallelText, Tag("parallel")],
    discriminated_by("kind", default="formal_language"),
]

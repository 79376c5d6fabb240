"""Data that are made, not read, as settings: what a sweep prepares for its trials."""

from typing import Annotated, Literal

from pydantic import Field, Tag

from structattn.settings.base import Settings, told_apart_by

Lengths = tuple[int, int]


class FormalLanguageData(Settings):
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
    seed: int | None = Field(default=None, ge=0, description="of training and validation; None: that of the trial")


class TransductionPairs(Settings):
    """Pairs of a transduction; the defaults are the sizes of Li et al. (2024, section 4.2)."""

    kind: Literal["transduction"]
    transduction: str = Field(description="its name, as `structattn list` shows it")
    train_lengths: Lengths = Field(default=(1, 40), description="least and greatest length of x in training")
    test_lengths: Lengths = Field(default=(41, 100), description="least and greatest length of x in the test set")
    valid_per_length: int = Field(default=16, ge=1, description="validation pairs of each length")
    test_per_length: int = Field(default=512, ge=1, description="test pairs of each length")
    seed: int | None = Field(default=None, ge=0, description="of the validation pairs; None: that of the trial")


Prepare = Annotated[
    Annotated[FormalLanguageData, Tag("formal_language")] | Annotated[TransductionPairs, Tag("transduction")],
    told_apart_by("kind", default="formal_language"),
]

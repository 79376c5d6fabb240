"""Settings of the data that a sweep prepares for its trials."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, NonNegativeInt

from structattn.settings.base import OneOf, Positive, Seed, Settings
from structattn.settings.choices import (
    Level,
    Marker,
    PairLayout,
    Protocol,
    TextMode,
    TransformationName,
    TreeTags,
    Variant,
)

LANGUAGE_FILES: Final = (".cfg", ".fsa", ".regex")
"""The endings of files of languages: grammars, finite automata, regular expressions."""

Split = Literal["train", "valid", "valid-long", "test", "test-held-out", "test-edit-distance", "gen"]
"""The splits of prepared data; each task has some of them."""

Lengths = tuple[int, int]


class SampledData(Settings):
    """Base class of data that are sampled at random."""

    seed: Seed | None = Field(default=None, description="random seed; null: that of the trial")

    def seeded(self, trial_seed: int) -> Self:
        """Return these settings with a seed: their own, or that of the trial."""
        return self.model_copy(update={"seed": trial_seed}) if self.seed is None else self

    @property
    def files(self) -> tuple[str, ...]:
        """The files from which they are made."""
        return ()


class FormalLanguageData(SampledData):
    """Strings of a formal language; the default sizes are those of DuSell & Chiang (2024, section 6)."""

    kind: Literal["formal_language"] = "formal_language"
    language: str = Field(
        description="name of the language, as listed by `structattn list`, or a file .cfg, .fsa or .regex"
    )
    variant: Variant = Field(
        default="faithful",
        description="the grammar as published (faithful), or as transformed by the authors' code (reference)",
    )
    train: Positive = Field(default=10_000, description="number of training strings")
    valid: Positive = Field(default=1_000, description="number of validation strings")
    test_per_length: Positive = Field(default=100, description="number of test strings of each length")
    train_lengths: Lengths = Field(default=(40, 80), description="minimal and maximal length of training strings")
    test_lengths: Lengths = Field(default=(40, 100), description="minimal and maximal length of test strings")
    group_size: Positive = Field(
        default=10,
        description="number of consecutive training strings of equal length, so that batches need no padding",
    )
    short: NonNegativeInt = Field(
        default=0, description="number of further, short training strings, for training.curriculum"
    )
    short_lengths: Lengths = Field(default=(1, 11), description="minimal and maximal length of these")

    @property
    def files(self) -> tuple[str, ...]:
        """The file that defines the language, if it is none of those with a name."""
        return (self.language,) if self.language.endswith(LANGUAGE_FILES) else ()


class TransductionPairs(SampledData):
    """Pairs of a transduction; the default sizes are those of Li et al. (2024, section 4.2)."""

    kind: Literal["transduction"]
    transduction: str = Field(description="name of the transduction, as listed by `structattn list`")
    train_lengths: Lengths = Field(default=(1, 40), description="minimal and maximal length of training inputs")
    test_lengths: Lengths = Field(default=(41, 100), description="minimal and maximal length of test inputs")
    valid_per_length: Positive = Field(default=16, description="number of validation pairs of each length")
    test_per_length: Positive = Field(default=512, description="number of test pairs of each length")


class RecognitionData(SampledData):
    """Labelled strings of a formal language; the default sizes are those of FLaRe (Butoi et al. 2025)."""

    kind: Literal["recognition"]
    language: str = Field(
        description="name of the language, as listed by `structattn list`, or a file .cfg, .fsa or .regex"
    )
    protocol: Protocol = Field(
        default="flare",
        description="strings as FLaRe draws them (flare); or negatives that have the shape and the lengths of members, "
        "in disjoint splits (hard)",
    )
    train: Positive = Field(default=10_000, description="number of training strings")
    valid: Positive = Field(default=1_000, description="number of strings of each of the two validation splits")
    test: Positive | None = Field(
        default=None, description="number of test strings, in hard of each length; null: 5,010, in hard 20"
    )
    max_length: Positive = Field(default=40, description="maximal length of training and validation strings")
    max_length_long: Positive = Field(default=80, description="maximal length of strings of the split valid-long")
    max_length_test: Positive | None = Field(
        default=None, description="maximal length of test strings; null: 500, in hard 200"
    )

    @property
    def files(self) -> tuple[str, ...]:
        """The file that defines the language, if it is none of those with a name."""
        return (self.language,) if self.language.endswith(LANGUAGE_FILES) else ()


TextFiles = Annotated[
    tuple[str, ...], Field(min_length=1, max_length=2, description="source and target file, line for line; or one TSV")
]


class ParallelText(Settings):
    """Parallel text, with the options of `structattn prepare parallel`."""

    kind: Literal["parallel"]
    train: TextFiles
    valid: TextFiles
    test: TextFiles | None = None
    level: Level = Field(default="bpe", description="unit of tokens")
    joint: bool = Field(default=True, description="one subword model and one vocabulary for both sides")
    vocabulary_size: NonNegativeInt = Field(
        default=32_000, description="number of merges (bpe) or pieces (sentencepiece) to learn"
    )
    vocabulary_threshold: NonNegativeInt = Field(
        default=0, description="subwords less frequent than this on a side are split on that side; words become <unk>"
    )
    marker: Marker = Field(default="end", description="word-boundary marker of bpe")
    nfkc: bool = Field(default=True, description="normalize text to Unicode NFKC")
    lowercase: bool = Field(default=False, description="convert text to lower case")
    max_characters: Positive | None = Field(default=None, description="drop pairs in which a side is longer")
    max_ratio: float | None = Field(
        default=None,
        ge=1,
        description="drop training pairs in which a side is more than this many times as long as the other",
    )
    drop_full_stops: bool = Field(default=False, description="drop pairs in which a side is a single full stop")
    sample: Positive | None = Field(default=None, description="keep a random sample of this many training pairs")
    sample_seed: Seed = Field(default=123, description="random seed of the sample")

    @property
    def splits(self) -> dict[str, tuple[str, ...]]:
        """Split -> its files."""
        return {"train": self.train, "valid": self.valid} | ({} if self.test is None else {"test": self.test})

    @property
    def files(self) -> tuple[str, ...]:
        """The files from which they are made."""
        return tuple(file for files in self.splits.values() for file in files)


class TextData(Settings):
    """Text for language modeling, with the options of `structattn prepare text`."""

    kind: Literal["text"]
    train: str = Field(description="file of training text, one sequence per line")
    valid: str = Field(description="file of validation text")
    test: str | None = Field(default=None, description="file of test text")
    level: Level | Literal["pretrained"] = Field(default="word", description="unit of tokens")
    unknown_classes: bool = Field(
        default=False, description="words seen once become classes by shape and suffix, such as UNK-LC-ing"
    )
    tokenizer: str | None = Field(
        default=None, description="local folder of a Hugging Face tokenizer, at level pretrained"
    )
    mode: TextMode = Field(default="sentences", description="each line is an example, or all lines form one stream")
    skip_empty: bool = Field(default=False, description="drop empty lines instead of refusing them")
    min_count: Positive = Field(
        default=1, description="symbols with fewer training occurrences become <unk>; such subwords are split"
    )
    max_symbols: Positive | None = Field(default=None, description="maximum number of symbols in the vocabulary")
    vocabulary_size: Positive = Field(
        default=32_000, description="number of merges (bpe) or pieces (sentencepiece) to learn"
    )
    marker: Marker = Field(default="end", description="word-boundary marker of bpe")
    block_length: Positive | None = Field(
        default=None,
        description="in a stream, cut the end off every 1,000 lines so that the rest makes whole blocks of this length",
    )
    nfkc: bool = Field(default=False, description="normalize text to Unicode NFKC")
    lowercase: bool = Field(default=False, description="convert text to lower case")

    @property
    def files(self) -> tuple[str, ...]:
        """The files from which they are made."""
        tokenizer = [] if self.tokenizer is None else [f"{self.tokenizer}/tokenizer.json"]
        return tuple(file for file in (self.train, self.valid, self.test, *tokenizer) if file is not None)


class Treebank(Settings):
    """Constituency trees, with the options of `structattn prepare trees`."""

    kind: Literal["trees"]
    train: str = Field(description="file of bracketed trees")
    valid: str = Field(description="file of bracketed trees")
    test: str | None = Field(default=None, description="file of bracketed trees")
    tags: TreeTags = Field(
        default="normalized",
        description="what stands for a word in a linearized tree: XX (normalized), or its part-of-speech tag (kept)",
    )
    layout: PairLayout = Field(
        default="parallel",
        description="sentences and linearized trees, for a parser; or sentences with their trees, for a language model",
    )
    level: Level = Field(default="word", description="unit of tokens of the sentences")
    vocabulary_size: NonNegativeInt = Field(
        default=8_000, description="number of merges (bpe) or pieces (sentencepiece) to learn"
    )
    vocabulary_threshold: NonNegativeInt = Field(
        default=0, description="words less frequent than this become <unk>; subwords are split"
    )

    @property
    def splits(self) -> dict[str, tuple[str, ...]]:
        """Split -> its file."""
        given = {"train": self.train, "valid": self.valid, "test": self.test}
        return {name: (file,) for name, file in given.items() if file is not None}

    @property
    def files(self) -> tuple[str, ...]:
        """The files from which they are made."""
        return tuple(file for files in self.splits.values() for file in files)


class TransformationPairs(SampledData):
    """Question formation or tense reinflection; the default sizes are those of McCoy et al. (2020)."""

    kind: Literal["transformation"]
    transformation: TransformationName = Field(description="task")
    published: str | None = Field(
        default=None, description="folder with the published NAME.dev, NAME.test and NAME.gen; null: draw these sets"
    )
    layout: PairLayout = Field(
        default="sentences", description="source and target as one sentence, or pairs for an encoder-decoder"
    )
    train: Positive = Field(default=100_000, description="number of training pairs")
    valid: Positive = Field(default=1_000, description="number of validation pairs, where drawn")
    test: Positive = Field(default=10_000, description="number of test pairs, where drawn")
    gen: Positive = Field(default=10_000, description="number of generalisation pairs, where drawn")

    @property
    def files(self) -> tuple[str, ...]:
        """The files from which they are made."""
        splits = ("dev", "test", "gen") if self.published is not None else ()
        return tuple(f"{self.published}/{self.transformation}.{split}" for split in splits)


Prepare = Annotated[
    FormalLanguageData | TransductionPairs | RecognitionData | ParallelText | TextData | Treebank | TransformationPairs,
    OneOf("kind", "formal_language"),
]

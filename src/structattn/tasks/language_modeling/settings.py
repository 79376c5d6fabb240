"""Settings of the preparation of text."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from structattn.support.errors import UsageError
from structattn.text.folders.text_tokenizer import PRETRAINED, SUBWORD_LEVELS, TEXT_LEVELS, UNKNOWN_CLASSES
from structattn.text.lines import Normalization
from structattn.text.tokenization.byte_pair_encoding import MARKERS
from structattn.text.tokenization.subword_training import number_of_subwords

MODES: Final = ("sentences", "stream")


@dataclass(frozen=True)
class TextSettings:
    """How text is checked, split into tokens and stored.

    Args:
        level: ``word`` (separated by spaces and tabs), ``character`` (code points), ``byte`` (of UTF-8), or one of the
            subwords ``bpe``, ``sentencepiece-bpe`` and ``sentencepiece-unigram``; or ``pretrained``.
        mode: ``sentences``: each line is a separate example; ``stream``: the lines are concatenated; None: a stream if
            lines are wrapped and paragraphs end at empty lines, else sentences.
        skip_empty: drop lines without symbols in sentence mode; otherwise they are refused.
        max_line_tokens: longer lines are refused in sentence mode.
        min_count: symbols that are rarer in the training text become ``<unk>``; rarer subwords are split.
        max_symbols: the maximum vocabulary size, not counting special symbols; the most frequent symbols are kept. Not
            for subwords.
        unknown_classes: words that are rarer than 2 or ``min_count`` become classes by shape and suffix instead of
            ``<unk>``, see ``unknown_class``; for words only.
        vocabulary_size: the number of merges (``bpe``) or pieces (SentencePiece) to learn; None: one merge for each
            hundred words of the training text, at most 32,000.
        marker: the word-boundary marker of ``bpe``, see ``BytePairEncoding``.
        block_length: in a stream, cut the end off every 1,000 lines so that the rest makes whole blocks of this many
            tokens, ``<eos>`` included (Li et al. 2024); None to keep all tokens.
        tokenizer: the local folder of a Hugging Face tokenizer (``tokenizer.json``), at level ``pretrained``.
        nfkc: normalize text to Unicode NFKC.
        lowercase: convert text to lower case.

    Raises:
        UsageError: a value is out of range, or does not apply to the level.
    """

    level: str = "word"
    mode: str | None = "sentences"
    skip_empty: bool = False
    max_line_tokens: int = 100_000
    min_count: int = 1
    max_symbols: int | None = None
    vocabulary_size: int | None = None
    marker: str = "end"
    unknown_classes: bool = False
    block_length: int | None = None
    tokenizer: str | None = None
    nfkc: bool = False
    lowercase: bool = False

    def __post_init__(self) -> None:
        for name, known in (("level", (*TEXT_LEVELS, PRETRAINED)), ("mode", MODES), ("marker", MARKERS)):
            if getattr(self, name) not in known and (name, self.mode) != ("mode", None):
                raise UsageError(f"{name} {getattr(self, name)!r} is not one of {sorted(known)}")
        for name in ("max_line_tokens", "min_count", "max_symbols", "vocabulary_size", "block_length"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; expected at least 1")
        if self.block_length is not None and self.mode == "sentences":
            raise UsageError("block_length applies to mode stream, not to sentences (--block-length, --mode stream)")
        if (self.level == PRETRAINED) != (self.tokenizer is not None):
            raise UsageError(
                f"level is {self.level} and tokenizer {self.tokenizer}; expected both or neither of pretrained"
            )
        if self.unknown_classes and self.level != "word":
            raise UsageError(f"unknown_classes apply to level word, not to {self.level} (--unknown-classes)")
        if self.level == "byte" and (self.min_count > 1 or self.max_symbols is not None):
            reason = "min_count and max_symbols do not apply to bytes: the vocabulary always has all 256"
            raise UsageError(f"{reason} (--min-count, --max-symbols)")
        if self.subwords and self.max_symbols is not None:
            raise UsageError("max_symbols does not apply to subwords; expected vocabulary_size (--vocabulary-size)")

    @property
    def subwords(self) -> bool:
        """Whether tokens are subwords."""
        return self.level in (*SUBWORD_LEVELS, PRETRAINED)

    @property
    def unit(self) -> str:
        """The unit into which lines are split and in which they are counted: the level, or ``word`` for subwords."""
        return "word" if self.subwords else self.level

    @property
    def normalization(self) -> Normalization | None:
        """The normalization of lines; None for lines as they are. Learned subwords need single spaces between words."""
        normalizes = self.level in SUBWORD_LEVELS or self.nfkc or self.lowercase
        return Normalization(self.nfkc, self.lowercase) if normalizes else None

    def fitted(self, words: Mapping[str, int]) -> "TextSettings":
        """Return the settings with the number of subwords to learn, given the counts of the training text's words."""
        if self.vocabulary_size is not None or self.level not in SUBWORD_LEVELS:
            return self
        return replace(self, vocabulary_size=number_of_subwords(self.level, words))

    def description(self) -> dict[str, Any]:
        """Return what the header stores of the tokenizer: the settings that apply to the level."""
        normalization = {} if self.normalization is None else self.normalization.description()
        if not self.subwords:
            classes = {UNKNOWN_CLASSES: True} if self.unknown_classes else {}
            counts = {"min_count": self.min_count, "max_symbols": self.max_symbols}
            return {"level": self.level, **counts, **classes, **normalization}
        if self.level == PRETRAINED:
            return {"level": self.level, **normalization}
        names = ("level", "vocabulary_size", "min_count", *(("marker",) if self.level == "bpe" else ()))
        return {name: value for name, value in asdict(self).items() if name in names} | normalization

"""Training of the tokenizers of parallel text from counted pre-tokens."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from structattn.support.errors import UsageError
from structattn.text.folders.parallel import ParallelSides
from structattn.text.folders.text_tokenizer import SUBWORD_LEVELS, TEXT_LEVELS, TextTokenizer
from structattn.text.lines import Normalization
from structattn.text.tokenization.byte_pair_encoding import MARKERS
from structattn.text.tokenization.subword_tokenizer import build_subword_tokenizers
from structattn.text.tokenization.subword_training import (
    number_of_subwords,
    pretoken_counts,
    pretokenizer,
    train_subword_model,
)
from structattn.text.tokenization.tokenizers import BYTE_SYMBOLS, SymbolTokenizer
from structattn.text.tokenization.vocabulary import UNKNOWN_SYMBOL, Vocabulary, WordCharacterTokenizer


@dataclass(frozen=True)
class TokenizerSettings:
    """Settings of the tokenizers of parallel text.

    Args:
        level: ``bpe``, ``sentencepiece-bpe``, ``sentencepiece-unigram``, ``word``, ``character`` or ``byte``.
        joint: whether both sides share the subword model and the vocabulary.
        size: the number of merges for ``bpe``, of pieces for SentencePiece; None: one merge for each hundred words of
            the training text, of both sides if ``joint``, at most 32,000, and for SentencePiece so many pieces more
            than characters; unused at other levels.
        threshold: the minimum count of a symbol on a side. Rarer subwords are split into smaller ones on that side;
            rarer words and characters become ``<unk>``. 0 keeps all.
        marker: the word-boundary marker of ``bpe``, see ``BytePairEncoding``.

    Raises:
        UsageError: a value is out of range.
    """

    level: str = "bpe"
    joint: bool = True
    size: int | None = None
    threshold: int = 0
    marker: str = "end"

    def __post_init__(self) -> None:
        if self.level not in TEXT_LEVELS:
            raise UsageError(f"level {self.level!r} is not one of {list(TEXT_LEVELS)}")
        if self.marker not in MARKERS:
            raise UsageError(f"marker {self.marker!r} is not one of {list(MARKERS)}")
        for name, value in (("size", self.size), ("threshold", self.threshold)):
            if value is not None and value < 0:
                raise UsageError(f"{name} is {value}; expected at least 0")
        if self.level == "byte" and self.threshold > 1:
            raise UsageError("threshold (--vocabulary-threshold) does not apply to bytes: the vocabulary has all 256")

    def description(self) -> dict[str, Any]:
        """Return the fields that the header stores: those that the level uses."""
        unused = set[str]() if self.level == "bpe" else {"marker"}
        if self.level not in SUBWORD_LEVELS:
            unused |= {"size"}
        return {name: value for name, value in asdict(self).items() if name not in unused}

    def fitted(self, source: Mapping[str, int], target: Mapping[str, int]) -> "TokenizerSettings":
        """Return the settings with the number of subwords, given the counts of the words of both sides."""
        if self.size is not None or self.level not in SUBWORD_LEVELS:
            return self
        words = _total([source, target])
        return replace(self, size=number_of_subwords(self.level, words, texts=1 if self.joint else 2))


Counts = Mapping[str, int]


def train_tokenizers(
    source: Counts, target: Counts, settings: TokenizerSettings, normalization: Normalization
) -> ParallelSides:
    """Train the tokenizers of both sides.

    Raises:
        UsageError: an optional library is not installed.
    """
    settings = settings.fitted(source, target)
    train = _train_subwords if settings.level in SUBWORD_LEVELS else _collect_symbols
    groups = [[source, target]] if settings.joint else [[source], [target]]
    tokenizers = [side for group in groups for side in train(group, settings, normalization)]
    return ParallelSides(tokenizers[0], tokenizers[1], settings.level)


def _train_subwords(
    sides: list[Counts], settings: TokenizerSettings, normalization: Normalization
) -> list[TextTokenizer]:
    assert settings.size is not None  # it is fitted
    pretokenize = pretokenizer(settings.level, settings.marker)
    pretokens = [pretoken_counts(words, pretokenize) for words in sides]
    model = train_subword_model(settings.level, _total(pretokens), settings.size, settings.marker)
    tokenizers = build_subword_tokenizers(model, pretokens, settings.threshold)
    return [TextTokenizer(tokenizer, normalization) for tokenizer in tokenizers]


def _total(sides: Sequence[Counts]) -> Counter[str]:
    total = Counter[str]()
    for counts in sides:
        total.update(counts)  # unlike a sum, this keeps counts of 0: the characters of evicted words
    return total


def _collect_symbols(
    sides: list[Counts], settings: TokenizerSettings, normalization: Normalization
) -> list[TextTokenizer]:
    """Take the words, characters or bytes that are frequent enough on at least one side, and ``<unk>``."""
    total = _total(sides)
    if settings.level == "byte":
        vocabulary = Vocabulary.from_symbols(BYTE_SYMBOLS)
    else:
        threshold = max(1, settings.threshold)  # the characters of evicted words have a count of 0
        frequent = {symbol for counts in sides for symbol in counts if counts[symbol] >= threshold}
        ranked = sorted(frequent - {UNKNOWN_SYMBOL}, key=lambda symbol: (-total[symbol], symbol))
        vocabulary = Vocabulary.from_symbols(ranked, unknown=True)
    characters = WordCharacterTokenizer.from_counts(total) if settings.level == "word" else None
    return [TextTokenizer(SymbolTokenizer(settings.level, vocabulary), normalization, characters) for _ in sides]

"""What a symbol of each side is, learnt from counted words."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from structattn.data.parallel.normalization import Normalization
from structattn.data.parallel.parallel_side import PARALLEL_LEVELS, SUBWORD_LEVELS, Side, Sides
from structattn.data.tokenization import BytePairs, SentencePieces, Subwords, learn_byte_pairs, learn_sentence_pieces
from structattn.data.tokenization.byte_pairs import MARKERS
from structattn.data.tokenization.spelling import speller_of
from structattn.data.tokenization.subword_vocabulary import numbered
from structattn.data.tokenization.tokenizers import BYTE_SYMBOLS, Tokenizer, split_line
from structattn.data.tokenization.vocabulary import UNKNOWN_SYMBOL, Vocabulary
from structattn.support.errors import UsageError

_SENTENCE_PIECE: Final = "sentencepiece-"


@dataclass(frozen=True)
class Coding:
    """What a symbol is.

    Args:
        level: ``bpe``, ``sentencepiece-bpe``, ``sentencepiece-unigram``, ``word``, ``character`` or ``byte``.
        joint: whether both sides share what is learnt, and one numbering.
        size: merges of ``bpe``; pieces of SentencePiece. Other levels do not use it.
        threshold: subwords that occur less often on a side are not used on it but parted into smaller ones; rarer words
            and characters become ``<unk>``. 0: none.
        marker: for ``bpe``, see ``BytePairs``.

    Raises:
        UsageError: a value is impossible.
    """

    level: str = "bpe"
    joint: bool = True
    size: int = 32_000
    threshold: int = 0
    marker: str = "end"

    def __post_init__(self) -> None:
        if self.level not in PARALLEL_LEVELS:
            raise UsageError(f"level {self.level!r} is not one of {list(PARALLEL_LEVELS)}")
        if self.marker not in MARKERS:
            raise UsageError(f"marker {self.marker!r} is not one of {list(MARKERS)}")
        for name, least in (("size", 0), ("threshold", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} is {getattr(self, name)}; expected at least {least}")
        if self.level == "byte" and self.threshold > 1:
            raise UsageError("threshold has no meaning for bytes: all 256 are always numbered")

    def description(self) -> dict[str, Any]:
        """What the header keeps: the fields that this level uses."""
        unused = set[str]() if self.level == "bpe" else {"marker"}
        if self.level not in SUBWORD_LEVELS:
            unused |= {"size"}
        return {name: value for name, value in asdict(self).items() if name not in unused}

    @property
    def cut(self) -> Callable[[str], list[str]]:
        """A normalised line to what is counted: words with their marks for subwords, else symbols."""
        if self.level == "bpe":
            return BytePairs((), self.marker).units
        if self.level in SUBWORD_LEVELS:
            return SentencePieces(b"").units
        return partial(split_line, self.level)


Counts = Mapping[str, int]


def learn_sides(source: Counts, target: Counts, coding: Coding, normalization: Normalization) -> Sides:
    """Learn from how often each of ``coding.cut`` occurs on each side of the training text.

    Raises:
        UsageError: a library is missing.
    """
    learn = _subword_sides if coding.level in SUBWORD_LEVELS else _symbol_sides
    groups = [[source, target]] if coding.joint else [[source], [target]]
    found = [side for group in groups for side in learn(group, coding, normalization)]
    return Sides(found[0], found[1], coding.level)


def _subword_sides(sides: list[Counts], coding: Coding, normalization: Normalization) -> list[Side]:
    subwords = _learnt(_total(sides), coding)
    return [Side(tokenizer, normalization) for tokenizer in numbered(subwords, sides, coding.threshold)]


def _total(sides: list[Counts]) -> Counter[str]:
    total = Counter[str]()
    for counts in sides:
        total.update(counts)  # unlike a sum, this keeps what was seen 0 times: characters of forgotten words
    return total


def _learnt(units: Counts, coding: Coding) -> Subwords:
    if coding.level == "bpe":
        return learn_byte_pairs(units, coding.size, coding.marker)
    return learn_sentence_pieces(units, coding.size, coding.level.removeprefix(_SENTENCE_PIECE))


def _symbol_sides(sides: list[Counts], coding: Coding, normalization: Normalization) -> list[Side]:
    """Words, characters or bytes: those that occur often enough on a side at least, and ``<unk>`` for new text."""
    total = _total(sides)
    if coding.level == "byte":
        vocabulary = Vocabulary.of(BYTE_SYMBOLS)
    else:
        least = max(1, coding.threshold)  # characters of forgotten words are counted 0 times
        common = {symbol for counts in sides for symbol in counts if counts[symbol] >= least}
        ranked = sorted(common - {UNKNOWN_SYMBOL}, key=lambda symbol: (-total[symbol], symbol))
        vocabulary = Vocabulary.of(ranked, unknown=True)
    speller = speller_of(total) if coding.level == "word" else None
    return [Side(Tokenizer(coding.level, vocabulary), normalization, speller) for _ in sides]

"""Subword tokenizers: a trained subword model with a vocabulary."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Protocol, SupportsInt

import numpy as np

from structattn.support.shapes import Int32
from structattn.support.special_tokens import FIRST_SYMBOL, UNK
from structattn.text.tokenization.tokenizers import refuse_surrogates
from structattn.text.tokenization.vocabulary import CONTROL_SYMBOLS, UNKNOWN_SYMBOL, Vocabulary

_CACHED_PRETOKENS = 1 << 17
_DRAWS_AT_ONCE = 512
_BATCH = 1 << 13  # pre-tokens segmented at once
_UNKNOWN_PIECE = "\n"  # represents <unk> among pieces: no line, and so no merge, contains it
_RESERVED = {*CONTROL_SYMBOLS, UNKNOWN_SYMBOL}


class SubwordModel(Protocol):
    """A trained segmentation of lines into pieces: ``BytePairEncoding`` or ``SentencePieceModel``.

    The pre-tokens of a line are those of its words, one after the other.
    """

    @property
    def pieces(self) -> Iterable[str]:
        """All pieces that were learned."""

    @property
    def kept(self) -> frozenset[str] | None:
        """The pieces that ``segment`` may return; None for all."""

    @property
    def digest(self) -> str:
        """The SHA-256 of everything that determines how a line is segmented."""

    def restrict(self, kept: Iterable[str]) -> "SubwordModel":
        """Return the same model restricted to these pieces."""

    def pretokenize(self, line: str) -> list[str]:
        """Split a line into pre-tokens, which are segmented independently of each other."""

    def segment(self, pretoken: str, draws: Iterator[float] | None = None, rate: float = 0.0) -> list[str]:
        """Segment a pre-token into pieces, with dropout at ``rate`` > 0."""

    def segment_all(self, pretokens: Sequence[str]) -> list[list[str]]:
        """Segment many pre-tokens at once; equal to ``segment`` on each."""

    def pretokens_of(self, pieces: Iterable[str]) -> list[str]:
        """Return the pre-tokens that pieces of a line came from."""

    def decode(self, pieces: Iterable[str]) -> str:
        """Decode pieces to a line."""


@dataclass(frozen=True)
class SubwordTokenizer:
    """Tokenizer whose tokens are the pieces of a subword model; implements ``Tokenizer``."""

    model: SubwordModel
    vocabulary: Vocabulary

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of everything that determines how a line is encoded."""
        return hashlib.sha256(json.dumps([self.model.digest, self.vocabulary.symbols]).encode()).hexdigest()

    def encode(self, line: str) -> list[int]:
        """Return the ids of a line, without ``<bos>`` and ``<eos>``.

        Args:
            line: words separated by single spaces, without leading or trailing spaces.

        Raises:
            TextError: see ``refuse_surrogates``.
        """
        refuse_surrogates(line)
        return [token for pretoken in self.model.pretokenize(line) for token in self._cached_ids(pretoken)]

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Return the ids of many words at once; joined, they are what ``encode`` returns for a line of these words."""
        pretokens = [self.model.pretokenize(word) for word in words]
        segmented = iter(self.model.segment_all([pretoken for each in pretokens for pretoken in each]))
        return [[token for pieces in islice(segmented, len(each)) for token in self._ids(pieces)] for each in pretokens]

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Decode ids to a line, without control symbols.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return self.model.decode(self.vocabulary.symbols_of(ids))

    def resegment(
        self, ids: Iterable[SupportsInt], rate: float, generator: np.random.Generator
    ) -> Int32[np.ndarray, " length"]:
        """Segment the same line again with merges dropped at random: BPE-dropout (Provilkov et al. 2020).

        ``<unk>`` stays ``<unk>``. Rate 0 changes nothing; at rate 1 a line becomes its characters.

        ``ids``: the output of ``encode``. ``rate``: the probability of dropping each possible merge, from 0 to
        1.

        Raises:
            UsageError: the subword model does not support dropout.
        """
        if rate == 0.0:
            return np.array([int(token) for token in ids], dtype=np.int32)
        draws = _uniform(generator)
        pieces = (_UNKNOWN_PIECE if int(token) == UNK else self.vocabulary.symbols[int(token)] for token in ids)
        pretokens = self.model.pretokens_of(pieces)
        tokens = [token for each in pretokens for token in self._ids(self.model.segment(each, draws, rate))]
        return np.array(tokens, dtype=np.int32)

    @cached_property
    def _cached_ids(self) -> Callable[[str], tuple[int, ...]]:
        return lru_cache(_CACHED_PRETOKENS)(lambda pretoken: tuple(self._ids(self.model.segment(pretoken))))

    def _ids(self, pieces: Iterable[str]) -> list[int]:
        id_of = self.vocabulary.id_of
        return [token if (token := id_of.get(piece, UNK)) >= FIRST_SYMBOL else UNK for piece in pieces]


def _uniform(generator: np.random.Generator) -> Iterator[float]:
    while True:
        yield from generator.random(_DRAWS_AT_ONCE).tolist()


def build_subword_tokenizers(
    model: SubwordModel, sides: Iterable[Mapping[str, int]], threshold: int = 0
) -> list[SubwordTokenizer]:
    """Build one tokenizer for each side, all with one shared vocabulary.

    Without a threshold the vocabulary holds every learned piece and every character. With one, a piece that is rarer on
    a side is not used there: its merge is undone, recursively (``--vocabulary-threshold`` of subword-nmt), and pieces
    used on no side are left out of the vocabulary. Single characters are always allowed.

    Pieces are ordered by descending count, ties by code point, after ``<unk>``. A piece with the name of a special
    symbol is never used.

    Args:
        model: the trained subword model.
        sides: for each side, the counts of the pre-tokens of its training text.
        threshold: the minimum count of a piece on a side; 0 or 1 keeps all.
    """
    counted = [piece_counts(model, pretokens) for pretokens in sides]
    characters = {character for counts in counted for piece in counts for character in piece}
    learned = {*model.pieces, *characters, *(piece for counts in counted for piece in counts)} - _RESERVED
    total = sum(counted, Counter[str]())  # drops counts of 0, so pieces that were never seen rank last
    kept = [learned if threshold <= 1 else _frequent(counts, threshold) | characters for counts in counted]
    ranked = sorted(set().union(*kept), key=lambda piece: (-total[piece], piece))
    vocabulary = Vocabulary.from_symbols(ranked, unknown=True)
    return [SubwordTokenizer(model.restrict(pieces), vocabulary) for pieces in kept]


def piece_counts(model: SubwordModel, pretokens: Mapping[str, int]) -> Counter[str]:
    """Count the pieces of a text, given the counts of its pre-tokens."""
    counts: Counter[str] = Counter()
    remaining = iter(pretokens)
    while batch := list(islice(remaining, _BATCH)):
        for pretoken, pieces in zip(batch, model.segment_all(batch), strict=True):
            for piece in pieces:
                counts[piece] += pretokens[pretoken]
    return counts


def _frequent(counts: Mapping[str, int], threshold: int) -> set[str]:
    return {piece for piece, count in counts.items() if count >= threshold} - _RESERVED

"""Byte-pair encoding (Sennrich et al. 2016): words are split into characters, which learned merges join.

A piece is written as its text, spaces included: with the marker ``end`` the word "lowest" may become
"low", "est " (the space marks the end of the word). So joining pieces decodes them, and no character of the text can be
mistaken for a marker, since words contain no spaces.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

from structattn.support.errors import UsageError
from structattn.support.imports import import_library

MARKERS: Final = ("end", "start", "continuation", "none")
MARK: Final = " "
_UNKNOWN: Final = "\n"  # no pre-token contains it
MAX_PRETOKEN_LENGTH: Final = 256
"""Longer words are cut into pre-tokens of this many characters, so that the time is linear in the line's length."""

PRETOKENS: Final = {
    "end": re.compile(rf"[^ ]{{1,{MAX_PRETOKEN_LENGTH}}} ?"),
    "start": re.compile(rf" ?[^ ]{{1,{MAX_PRETOKEN_LENGTH}}}"),
    "none": re.compile(rf"[^ ]{{1,{MAX_PRETOKEN_LENGTH}}}"),
}
PRETOKENS["continuation"] = PRETOKENS["end"]
"""Marker -> the expression whose matches are the pre-tokens of a line with its mark."""


@dataclass(frozen=True)
class BytePairEncoding:
    """A list of merges and how to apply it; implements ``SubwordModel``.

    Merges are applied in the order in which they were learned: at each step the earliest merge that applies joins all
    its occurrences from left to right. This is not the longest match. The library tokenizers computes it, except with
    dropout, for which its draws cannot be repeated.

    Args:
        merges: pairs of pieces in the order in which they were learned.
        marker: how pieces mark word boundaries. ``end``: a word is merged with the space after it (``</w>`` of Sennrich
            et al.); ``start``: with the space before it (``▁`` of SentencePiece); ``continuation``: a word is merged
            without spaces, and its last piece gets the space afterwards, so that all others are known to continue (the
            inverse of subword-nmt's ``@@``); ``none``: no marker, so decoding cannot restore the spaces.
        kept: the pieces that ``segment`` may return; None for all. The merge of any other piece is undone, recursively.
            Single characters are always allowed.

    Raises:
        ValueError: there is no such marker.
    """

    merges: tuple[tuple[str, str], ...]
    marker: str = "end"
    kept: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.marker not in MARKERS:
            raise ValueError(f"marker {self.marker!r} is not one of {list(MARKERS)}")

    @cached_property
    def _ranks(self) -> Mapping[tuple[str, str], int]:
        return MappingProxyType({pair: rank for rank, pair in reversed(list(enumerate(self.merges)))})

    @cached_property
    def _halves(self) -> Mapping[str, tuple[str, str]]:
        """The first merge that produces each piece."""
        return MappingProxyType({left + right: (left, right) for left, right in reversed(self.merges)})

    @cached_property
    def _model(self) -> Any:
        """The library's model; ``_UNKNOWN`` stands for characters that occur in no merge."""
        tokenizers = import_library("tokenizers", "mt", "byte-pair encoding")
        merges = list(dict.fromkeys(self.merges))
        pieces = {piece for left, right in merges for piece in (*left, *right, left, right, left + right)}
        vocabulary = {piece: index for index, piece in enumerate(sorted({_UNKNOWN, *pieces}))}
        return tokenizers.models.BPE(vocab=vocabulary, merges=merges, unk_token=_UNKNOWN, fuse_unk=False)

    @property
    def pieces(self) -> Iterable[str]:
        """The pieces that the merges produce, in order and without duplicates."""
        return dict.fromkeys(left + right for left, right in self.merges)

    @property
    def digest(self) -> str:
        """The SHA-256 of everything that determines how a line is segmented."""
        kept = None if self.kept is None else sorted(self.kept)
        return hashlib.sha256(json.dumps(["bpe", self.marker, self.merges, kept]).encode()).hexdigest()

    def restrict(self, kept: Iterable[str]) -> "BytePairEncoding":
        """Return the same merges restricted to these pieces."""
        return replace(self, kept=frozenset(kept))

    def pretokenize(self, line: str) -> list[str]:
        """Split a line into pre-tokens: its words with their marks. Nothing merges across them.

        Args:
            line: words separated by single spaces, without leading or trailing spaces.
        """
        if not line:
            return []
        marked = {"start": MARK + line, "none": line}.get(self.marker, line + MARK)
        return PRETOKENS[self.marker].findall(marked)

    def segment(self, pretoken: str, draws: Iterator[float] | None = None, rate: float = 0.0) -> list[str]:
        """Segment a pre-token into pieces.

        Args:
            pretoken: one of those that ``pretokenize`` returned.
            draws: numbers from [0, 1), one for each possible merge at each step; needed if rate > 0.
            rate: BPE-dropout (Provilkov et al. 2020, algorithm 1): at each step each possible merge is dropped with
                this probability; segmentation ends when no merge is left.

        Raises:
            UsageError: the library is not installed.
        """
        ends = self.marker == "continuation" and pretoken.endswith(MARK)
        text = pretoken[:-1] if ends else pretoken
        pieces = self._merge(text) if draws is None or rate == 0.0 else self._merge_some(list(text), draws, rate)
        if ends:
            pieces[-1] += MARK
        return pieces if self.kept is None else [part for piece in pieces for part in self._split_disallowed(piece)]

    def segment_all(self, pretokens: Sequence[str]) -> list[list[str]]:
        """Segment many pre-tokens."""
        return [self.segment(pretoken) for pretoken in pretokens]

    def pretokens_of(self, pieces: Iterable[str]) -> list[str]:
        """Return the pre-tokens that pieces of a line came from.

        Raises:
            UsageError: the marker is ``none``.
        """
        if self.marker == "none":
            raise UsageError("subword dropout needs a marker: without one, pieces do not show where words end")
        return PRETOKENS[self.marker].findall("".join(pieces))

    def decode(self, pieces: Iterable[str]) -> str:
        """Decode pieces to a line."""
        return " ".join(word for word in "".join(pieces).split(MARK) if word)

    def _merge(self, text: str) -> list[str]:
        tokens = self._model.tokenize(text)
        pieces = [token.value for token in tokens]
        if _UNKNOWN not in pieces:
            return pieces
        encoded = text.encode()  # offsets count bytes
        return [encoded[slice(*token.offsets)].decode() for token in tokens]

    def _merge_some(self, pieces: list[str], draws: Iterator[float], rate: float) -> list[str]:
        while True:
            merges = [
                (rank, index)
                for index, pair in enumerate(pairwise(pieces))
                if (rank := self._ranks.get(pair)) is not None and next(draws) >= rate
            ]
            if not merges:
                return pieces
            first = min(merges)[0]
            pieces = _join(pieces, [index for rank, index in merges if rank == first])

    def _split_disallowed(self, piece: str) -> list[str]:
        """Return the piece if it is allowed, otherwise its two halves, split in the same way."""
        if self.kept is None or piece in self.kept or len(piece) == 1:
            return [piece]
        left, right = self._halves_of(piece)
        return [*self._split_disallowed(left), *self._split_disallowed(right)]

    def _halves_of(self, piece: str) -> tuple[str, str]:
        if self.marker == "continuation" and piece.endswith(MARK):
            left, right = self._halves.get(piece[:-1], (piece[:-1], ""))
            return left, right + MARK
        return self._halves[piece]


def _join(pieces: Sequence[str], indices: Iterable[int]) -> list[str]:
    """Join piece i with piece i + 1 for each index i, from left to right; each piece is joined at most once."""
    joined, done = list[str](), 0
    for index in indices:
        if index >= done:
            joined += [*pieces[done:index], pieces[index] + pieces[index + 1]]
            done = index + 2
    return [*joined, *pieces[done:]]

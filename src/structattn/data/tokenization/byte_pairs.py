"""Byte-pair encoding (Sennrich et al. 2016): words become characters, and learnt merges join neighbours.

A piece is spelt as the text that it stands for, spaces included: with the marker ``end`` the word "lowest" may become
"low", "est " (the space says that the word ends there). So pieces are decoded by joining them, and no character of the
text can be taken for a marker: words hold no spaces.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from structattn.support.errors import UsageError

MARKERS: Final = ("end", "start", "continuation", "none")
MARK: Final = " "
LONGEST_UNIT: Final = 256
"""Longer words are cut after so many characters, so that a line costs time linear in its length."""

_UNITS = {
    "end": re.compile(rf"[^ ]{{1,{LONGEST_UNIT}}} ?"),
    "start": re.compile(rf" ?[^ ]{{1,{LONGEST_UNIT}}}"),
    "none": re.compile(rf"[^ ]{{1,{LONGEST_UNIT}}}"),
}
_UNITS["continuation"] = _UNITS["end"]


@dataclass(frozen=True)
class BytePairs:
    """A list of merges, and how to apply it.

    Applying takes, again and again, the merge that was learnt first among those that some neighbours allow, and joins
    all such neighbours from left to right; not the longest match.

    Args:
        merges: pairs of pieces in the order in which they were learnt.
        marker: ``end``: a word is merged together with a space after it (``</w>`` of Sennrich et al.); ``start``: with
            one before it (``▁`` of SentencePiece); ``continuation``: merged bare, and the piece that ends it gets the
            space afterwards, so that all others are known to continue (``@@`` of subword-nmt, the other way round);
            ``none``: words run together, and decoding cannot part them.
        kept: the pieces that may come out, where not all may: others are parted again by undoing their merge, and so
            on. Single characters come out in any case.

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
        """The first merge that makes each piece."""
        return MappingProxyType({left + right: (left, right) for left, right in reversed(self.merges)})

    @property
    def products(self) -> Iterable[str]:
        """What the merges make, in their order, each once."""
        return dict.fromkeys(left + right for left, right in self.merges)

    @property
    def digest(self) -> str:
        """The SHA-256 of all that decides how a line is cut."""
        kept = None if self.kept is None else sorted(self.kept)
        return hashlib.sha256(json.dumps(["bpe", self.marker, self.merges, kept]).encode()).hexdigest()

    def restricted(self, kept: Iterable[str]) -> "BytePairs":
        """The same merges, with only these pieces coming out."""
        return replace(self, kept=frozenset(kept))

    def units(self, line: str) -> list[str]:
        """The stretches of a line across which nothing merges: its words, with their marks.

        Args:
            line: words between single spaces, none at the ends.
        """
        if not line:
            return []
        spelt = {"start": MARK + line, "none": line}.get(self.marker, line + MARK)
        return _UNITS[self.marker].findall(spelt)

    def segment(self, unit: str, draws: Iterator[float] | None = None, rate: float = 0.0) -> list[str]:
        """Cut a unit into pieces.

        Args:
            unit: one of ``units``.
            draws: numbers from [0, 1), one for each merge that is possible at each step; needed where rate > 0.
            rate: BPE-dropout (Provilkov et al. 2020, algorithm 1): at each step each possible merge is left out with
                this probability, and the unit is done when none is left.
        """
        ends = self.marker == "continuation" and unit.endswith(MARK)
        pieces = self._merged(list(unit[:-1] if ends else unit), draws, rate)
        if ends:
            pieces[-1] += MARK
        return [part for piece in pieces for part in self._parted(piece)]

    def rejoined(self, pieces: Iterable[str]) -> list[str]:
        """The units that pieces of a line came from.

        Raises:
            UsageError: the marker is ``none``.
        """
        if self.marker == "none":
            raise UsageError("dropout of subwords needs a marker: without one nothing says where words end")
        return _UNITS[self.marker].findall("".join(pieces))

    def text(self, pieces: Iterable[str]) -> str:
        """The line that pieces stand for."""
        return " ".join(word for word in "".join(pieces).split(MARK) if word)

    def _merged(self, pieces: list[str], draws: Iterator[float] | None, rate: float) -> list[str]:
        while True:
            found = [
                (rank, index)
                for index, pair in enumerate(pairwise(pieces))
                if (rank := self._ranks.get(pair)) is not None and (draws is None or rate == 0.0 or next(draws) >= rate)
            ]
            if not found:
                return pieces
            first = min(found)[0]
            pieces = _joined(pieces, [index for rank, index in found if rank == first])

    def _parted(self, piece: str) -> list[str]:
        """The piece itself where it may come out, else its two halves, in the same way."""
        if self.kept is None or piece in self.kept or len(piece) == 1:
            return [piece]
        left, right = self._halves_of(piece)
        return [*self._parted(left), *self._parted(right)]

    def _halves_of(self, piece: str) -> tuple[str, str]:
        if self.marker == "continuation" and piece.endswith(MARK):
            left, right = self._halves.get(piece[:-1], (piece[:-1], ""))
            return left, right + MARK
        return self._halves[piece]


def _joined(pieces: Sequence[str], where: Iterable[int]) -> list[str]:
    """Join piece i with piece i + 1 for each i of ``where``, from left to right; a piece joined is not joined again."""
    joined, done = list[str](), 0
    for index in where:
        if index >= done:
            joined += [*pieces[done:index], pieces[index] + pieces[index + 1]]
            done = index + 2
    return [*joined, *pieces[done:]]

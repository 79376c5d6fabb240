"""Subwords with their numbers: lines to ids and back."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol, SupportsInt

import numpy as np
from jaxtyping import Int32

from structattn.data.tokenization.vocabulary import Vocabulary
from structattn.support.special_tokens import FIRST_SYMBOL, UNK

_REMEMBERED_UNITS = 1 << 17
_DRAWS_AT_ONCE = 512
_HOLE = "\n"  # stands for <unk> among pieces: no line and so no merge holds it


class Subwords(Protocol):
    """A learnt way to cut lines: ``BytePairs`` or ``SentencePieces``."""

    @property
    def products(self) -> Iterable[str]:
        """All pieces that were learnt."""

    @property
    def kept(self) -> frozenset[str] | None:
        """The pieces that may come out; None where all may."""

    @property
    def digest(self) -> str:
        """The SHA-256 of all that decides how a line is cut."""

    def restricted(self, kept: Iterable[str]) -> "Subwords":
        """The same, with only these pieces coming out."""

    def units(self, line: str) -> list[str]:
        """The stretches of a line that are cut independently of each other."""

    def segment(self, unit: str, draws: Iterator[float] | None = None, rate: float = 0.0) -> list[str]:
        """The pieces of a unit."""

    def rejoined(self, pieces: Iterable[str]) -> list[str]:
        """The units that pieces stand for."""

    def text(self, pieces: Iterable[str]) -> str:
        """The line that pieces stand for."""


@dataclass(frozen=True)
class SubwordTokenizer:
    """Learnt subwords and their numbering.

    Args:
        subwords: how lines are cut.
        vocabulary: the pieces; it has ``<unk>``, for a character that none of them holds.
    """

    subwords: Subwords
    vocabulary: Vocabulary

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all that decides how a line becomes ids."""
        return hashlib.sha256(json.dumps([self.subwords.digest, self.vocabulary.symbols]).encode()).hexdigest()

    def encode(self, line: str) -> list[int]:
        """The ids of a line, without ``<bos>`` and ``<eos>``.

        Args:
            line: words between single spaces, none at the ends.
        """
        return [number for unit in self.subwords.units(line) for number in self._ids(unit)]

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """The line that ids stand for; control symbols are left out.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        return self.subwords.text(self.vocabulary.visible(ids))

    def resegmented(
        self, ids: Iterable[SupportsInt], rate: float, generator: np.random.Generator
    ) -> Int32[np.ndarray, " length"]:
        """The ids of the same line cut anew, with merges left out at random: BPE-dropout (Provilkov et al. 2020).

        What is ``<unk>`` stays so. At rate 0 nothing changes, at rate 1 a line becomes its characters.

        Args:
            ids: what ``encode`` gave.
            rate: the probability with which each possible merge is left out.
            generator: decides which.

        Raises:
            UsageError: these subwords allow no dropout; the message says why.
        """
        if rate == 0.0:
            return np.array([int(number) for number in ids], dtype=np.int32)
        draws = _uniform(generator)
        pieces = (_HOLE if int(number) == UNK else self.vocabulary.symbols[int(number)] for number in ids)
        units = self.subwords.rejoined(pieces)
        numbers = [number for unit in units for number in self._numbers(self.subwords.segment(unit, draws, rate))]
        return np.array(numbers, dtype=np.int32)

    @cached_property
    def _ids(self) -> Callable[[str], tuple[int, ...]]:
        """The ids of a unit, those of the latest units remembered."""
        return lru_cache(_REMEMBERED_UNITS)(lambda unit: tuple(self._numbers(self.subwords.segment(unit))))

    def _numbers(self, pieces: Iterable[str]) -> list[int]:
        known = self.vocabulary.id_of
        return [number if (number := known.get(piece, UNK)) >= FIRST_SYMBOL else UNK for piece in pieces]


def _uniform(generator: np.random.Generator) -> Iterator[float]:
    while True:
        yield from generator.random(_DRAWS_AT_ONCE).tolist()

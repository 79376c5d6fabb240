"""Pairs of sequences, memory-mapped: the splits of parallel text."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64

from structattn.data.folders.rare_words import RareWords
from structattn.data.folders.sequences import Sequences


@dataclass(frozen=True)
class Pairs:
    """The pairs of one split; ``pairs[i]`` is the i-th as (source ids, target ids).

    Args:
        source: the source sides.
        target: the target sides; as many.
        lines: the line, from 1, that each pair had in the files it was read from: dropped pairs leave gaps.
        rare: which words the ``<unk>`` of the source and of the target are, at level ``word``.
    """

    source: Sequences
    target: Sequences
    lines: Int64[np.ndarray, " pairs"]
    rare: tuple[RareWords, RareWords] | None = None

    def __post_init__(self) -> None:
        if not len(self.source) == len(self.target) == len(self.lines):
            sizes = f"{len(self.source)} source sides, {len(self.target)} target sides, {len(self.lines)} lines"
            raise ValueError(f"pairs need as many of each: {sizes}")

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[Int32[np.ndarray, " source"], Int32[np.ndarray, " target"]]:
        return self.source[index], self.target[index]

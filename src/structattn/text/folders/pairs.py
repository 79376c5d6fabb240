"""Memory-mapped pairs of sequences: the splits of parallel text."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int32, Int64

from structattn.text.folders.rare_words import RareWords
from structattn.text.folders.sequences import Sequences


@dataclass(frozen=True)
class Pairs:
    """The pairs of one split; ``pairs[i]`` is the i-th as (source ids, target ids).

    Args:
        source: the source sequences.
        target: the target sequences, equally many.
        lines: the line number of each pair in the original files, counted from 1; dropped pairs leave gaps.
        rare: the rare words of source and target, at level ``word``.

    Raises:
        ValueError: the numbers of source sequences, target sequences and lines differ.
    """

    source: Sequences
    target: Sequences
    lines: Int64[np.ndarray, " pairs"]
    rare: tuple[RareWords, RareWords] | None = None

    def __post_init__(self) -> None:
        if not len(self.source) == len(self.target) == len(self.lines):
            sizes = f"{len(self.source)} source sequences, {len(self.target)} target sequences, {len(self.lines)} lines"
            raise ValueError(f"expected equally many of each: {sizes}")

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[Int32[np.ndarray, " source"], Int32[np.ndarray, " target"]]:
        return self.source[index], self.target[index]

"""One contrastive pair, and where it stands."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Contrast:
    """A source with two translations, of which the model should find the first one more likely.

    Args:
        source: the line in the source language.
        reference: its translation.
        contrastive: the same with an error.
        kind: the type of the error.
        distance: how many words lie between the two that must agree, where that is told.
        path: the file.
        line: the line in it, from 1, at which the pair begins.
    """

    source: str
    reference: str
    contrastive: str
    kind: str
    distance: int | None
    path: Path
    line: int

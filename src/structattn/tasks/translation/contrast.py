"""A contrastive pair of translations."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Contrast:
    """A source with a correct and an incorrect translation, of which a model should prefer the correct one.

    Args:
        source: the source line.
        reference: its translation.
        contrastive: the same with an error.
        kind: the type of the error.
        distance: the number of words between the two that must agree, if stated.
        path: the file.
        line: the line at which the pair begins, counted from 1.
    """

    source: str
    reference: str
    contrastive: str
    kind: str
    distance: int | None
    path: Path
    line: int

"""Random portions of the lines of a file, for splits that are held out of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from structattn.support.errors import UsageError
from structattn.support.seeds import derived_seed


@dataclass(frozen=True)
class Portion:
    """A random portion of the lines of a file, or of its pairs by their source lines, with all that are equal.

    A hash of the line and the seed gives a number uniform over [0, 1); the portion holds the lines
    with numbers in [low, high).
    """

    low: float
    high: float
    seed: int

    def contains(self, line: str) -> bool:
        """Return whether a line is in the portion."""
        return self.low <= derived_seed(self.seed, "held out", line) / 2**63 < self.high


def split_portions(shares: Mapping[str, float], seed: int, rest: str) -> dict[str, Portion]:
    """Divide [0, 1) into portions.

    Raises:
        UsageError: a share is not between 0 and 1, or nothing remains.
    """
    portions, low = {}, 0.0
    for name, share in shares.items():
        if not 0 < share < 1:
            raise UsageError(f"the share held out for {name!r} is {share}; expected more than 0 and less than 1")
        portions[name] = Portion(low, low + share, seed)
        low += share
    if low >= 1:
        raise UsageError(f"the shares held out add up to {low:g}; nothing is left for {rest!r}")
    return portions | {rest: Portion(low, 1.0, seed)}

"""BPE-dropout for pairs: each is cut anew in each epoch, and again in the same way after a resume."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int32
from numpy.typing import NDArray

from structattn.data.parallel.parallel_side import Side, Sides
from structattn.data.tokenization.subword_tokenizer import SubwordTokenizer
from structattn.support.errors import UsageError
from structattn.support.seeds import numpy_generator


@dataclass(frozen=True)
class SubwordDropout:
    """Leaves merges out at random (Provilkov et al. 2020), a pure function of (seed, epoch, pair).

    Cost: about 0.5 ms for a pair of 27 words, both sides together. In text that is translated or scored nothing is left
    out.

    Args:
        sides: of a prepared folder of level ``bpe``.
        source: the probability with which each possible merge of the source is left out.
        target: that of the target.
        seed: decides which, together with the epoch and the number of the pair.
        longest: a line that dropout cuts into more tokens stays as it is; None: no end.

    Raises:
        UsageError: a rate is outside [0, 1], or the subwords allow no dropout.
    """

    sides: Sides
    source: float
    target: float
    seed: int
    longest: int | None = None

    def __post_init__(self) -> None:
        for side, rate in ((self.sides.source, self.source), (self.sides.target, self.target)):
            if not 0.0 <= rate <= 1.0:
                raise UsageError(f"the rate of subword dropout is {rate}; expected 0 to 1")
            if rate:
                _tokenizer(side).subwords.rejoined(())

    def apply(
        self, source: NDArray[Any], target: NDArray[Any], *, epoch: int, index: int
    ) -> tuple[Int32[np.ndarray, " source"], Int32[np.ndarray, " target"]]:
        """A pair of ids cut anew."""
        return (
            self._side(self.sides.source, source, self.source, "source", epoch, index),
            self._side(self.sides.target, target, self.target, "target", epoch, index),
        )

    def _side(
        self, side: Side, ids: NDArray[Any], rate: float, name: str, epoch: int, index: int
    ) -> Int32[np.ndarray, " length"]:
        if rate == 0.0:
            return ids
        generator = numpy_generator(self.seed, "subwords", name, epoch, index)
        cut = _tokenizer(side).resegmented(ids, rate, generator)
        return cut if self.longest is None or len(cut) <= self.longest else ids


def _tokenizer(side: Side) -> SubwordTokenizer:
    if not isinstance(side.tokenizer, SubwordTokenizer):
        raise UsageError("dropout of subwords needs level bpe; these symbols have no parts")
    return side.tokenizer

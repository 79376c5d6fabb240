"""Constraints on the outputs of a beam search."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from structattn.decoding.beam_search import Forbid
from structattn.support.shapes import Int


class Constraint(Protocol):
    """Outputs that are allowed for each source line. Every line has some."""

    def min_length(self, line: str) -> int:
        """Return the number of tokens of the shortest output of a normalized source line, <eos> included."""
        ...

    def forbid(self, lines: Sequence[str], max_lengths: Int[Tensor, " batch"]) -> Forbid:
        """Return the rule of a beam search for these lines: what cannot be completed to an allowed output is forbidden.

        Args:
            lines: normalized source lines, one for each sentence of the batch.
            max_lengths: of their outputs, <eos> included, each at least ``min_length``.
        """
        ...

"""String transductions, sampled on the fly: the Chomsky-hierarchy suite (Delétang et al. 2023), and formal languages.

- ``transduction`` returns a ``Transduction`` by name; ``TRANSDUCTIONS`` is the registry.
- ``Strings`` and ``Pairs`` are arrays of symbol indices.
- ``prepare_transduction`` writes a prepared folder of the sizes ``TransductionSizes``.
"""

from structattn.data.transductions.prepare import TransductionSizes, prepare_transduction
from structattn.data.transductions.registry import TRANSDUCTIONS, transduction
from structattn.data.transductions.transduction import Pairs, Strings, Transduction

__all__ = [
    "TRANSDUCTIONS",
    "Pairs",
    "Strings",
    "Transduction",
    "TransductionSizes",
    "prepare_transduction",
    "transduction",
]

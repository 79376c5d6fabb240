"""Contrastive pairs: a reference translation and the same with an error; or two sentences, one of them acceptable.

- ``read_contrasts`` reads a list of ``Contrast``.
- ``read_minimal_pairs`` reads a list of ``MinimalPair``.
"""

from structattn.data.contrastive.contrast import Contrast
from structattn.data.contrastive.minimal_pairs import MinimalPair, read_minimal_pairs
from structattn.data.contrastive.reading import read_contrasts

__all__ = ["Contrast", "MinimalPair", "read_contrasts", "read_minimal_pairs"]

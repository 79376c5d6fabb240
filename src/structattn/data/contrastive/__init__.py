"""Contrastive pairs: a reference translation, and the same with one error of a known type.

- ``read_contrasts`` reads a list of ``Contrast``.
"""

from structattn.data.contrastive.contrast import Contrast
from structattn.data.contrastive.reading import read_contrasts

__all__ = ["Contrast", "read_contrasts"]

"""Preparation of parallel text: pairs of lines are checked, filtered and encoded.

- ``prepare_parallel`` writes a prepared folder.
- ``TokenizerSettings``, ``Filters`` and ``structattn.text.normalization.Normalization`` are its options.
"""

from structattn.data.parallel.filters import Filters
from structattn.data.parallel.prepare import prepare_parallel
from structattn.data.parallel.tokenizer_training import TokenizerSettings

__all__ = ["Filters", "TokenizerSettings", "prepare_parallel"]

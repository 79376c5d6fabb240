"""Prepared folders: memory-mapped token ids with a header and digests.

- ``open_prepared`` opens a folder as a ``PreparedFolder``; ``write_prepared`` writes one.
- ``verify_prepared`` compares the folder with its digests, ``verify_sources`` the files that it was made from.
- ``Sequences`` and ``Pairs`` are the splits; ``TextTokenizer`` encodes and decodes lines, ``ParallelSides`` pairs.
"""

from structattn.data.folders.pairs import Pairs
from structattn.data.folders.parallel_side import ParallelSides
from structattn.data.folders.prepared import PreparedFolder, open_prepared, verify_prepared, verify_sources
from structattn.data.folders.sequences import Sequences
from structattn.data.folders.text_tokenizer import TextTokenizer
from structattn.data.folders.writing import write_prepared

__all__ = [
    "Pairs",
    "ParallelSides",
    "PreparedFolder",
    "Sequences",
    "TextTokenizer",
    "open_prepared",
    "verify_prepared",
    "verify_sources",
    "write_prepared",
]

"""Prepared folders: memory-mapped token ids with a header and digests.

- ``open_prepared`` opens a folder as a ``PreparedFolder``; ``write_prepared`` writes one.
- ``verify_prepared`` compares the folder with its digests, ``verify_sources`` the files that it was made from.
- ``Sequences`` and ``Pairs`` are the splits; ``ParallelSides`` and ``ParallelSide`` encode and decode parallel text.
"""

from structattn.data.folders.pairs import Pairs
from structattn.data.folders.parallel_side import ParallelSide, ParallelSides
from structattn.data.folders.prepared import PreparedFolder, open_prepared, verify_prepared, verify_sources
from structattn.data.folders.sequences import Sequences
from structattn.data.folders.writing import write_prepared

__all__ = [
    "Pairs",
    "ParallelSide",
    "ParallelSides",
    "PreparedFolder",
    "Sequences",
    "open_prepared",
    "verify_prepared",
    "verify_sources",
    "write_prepared",
]

"""Data: strict reading of text, tokenizers, prepared folders and resumable batches.

- ``prepare_language_modeling`` writes a prepared folder from text as ``TextSettings`` say; the functions for parallel
  text, formal languages and transductions are in ``data.parallel``, ``data.formal_languages`` and
  ``data.transductions``.
- ``open_prepared`` opens a prepared folder as a ``PreparedFolder``, whose splits are ``Sequences`` or ``Pairs``;
  ``write_prepared``, ``verify_prepared`` and ``verify_sources`` write and check one.
- ``Tokenizer`` is the protocol of all tokenizers, ``Vocabulary`` their symbols and ids; ``build_tokenizer`` builds a
  ``SymbolTokenizer`` of words, characters or bytes.

Only ``data.batching`` needs torch; it is not imported here. Imports run in one direction: text, treebanks,
tokenization, folders, then the packages that prepare data, and batching.
"""

from structattn.data.folders import (
    Pairs,
    PreparedFolder,
    Sequences,
    open_prepared,
    verify_prepared,
    verify_sources,
    write_prepared,
)
from structattn.data.language_modeling import TextSettings, prepare_language_modeling
from structattn.data.tokenization import SymbolTokenizer, Tokenizer, Vocabulary, build_tokenizer

__all__ = [
    "Pairs",
    "PreparedFolder",
    "Sequences",
    "SymbolTokenizer",
    "TextSettings",
    "Tokenizer",
    "Vocabulary",
    "build_tokenizer",
    "open_prepared",
    "prepare_language_modeling",
    "verify_prepared",
    "verify_sources",
    "write_prepared",
]

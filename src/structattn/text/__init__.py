"""Text: strict reading, tokenizers, prepared folders and batches: what every topic shares.

- ``open_prepared`` opens a prepared folder as a ``PreparedFolder``, whose splits are ``Sequences`` or ``Pairs``;
  ``write_prepared`` writes one; ``verify_prepared`` compares it with its digests, ``verify_sources`` the files that it
  was made from.
- ``Tokenizer`` is the protocol of all tokenizers, ``Vocabulary`` their symbols and ids; ``build_tokenizer`` builds a
  ``SymbolTokenizer`` of words, characters or bytes.

Only ``text.batching`` needs torch. Preparation of data is in the folder of each task.
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.text.folders.parallel import Pairs
    from structattn.text.folders.prepared import PreparedFolder, open_prepared, verify_prepared, verify_sources
    from structattn.text.folders.sequences import Sequences
    from structattn.text.folders.writing import write_prepared
    from structattn.text.tokenization.tokenizers import SymbolTokenizer, Tokenizer, build_tokenizer
    from structattn.text.tokenization.vocabulary import Vocabulary

__all__ = [
    "Pairs",
    "PreparedFolder",
    "Sequences",
    "SymbolTokenizer",
    "Tokenizer",
    "Vocabulary",
    "build_tokenizer",
    "open_prepared",
    "verify_prepared",
    "verify_sources",
    "write_prepared",
]

__getattr__, __dir__ = lazy_exports(__name__)

"""The only part that reads text: checks it, numbers it, writes a prepared folder, hands out resumable batches.

``structattn.data.batching.sequences`` is imported by name: it alone needs torch.
"""

from structattn.data.folders.prepared import (
    Pairs,
    PreparedFolder,
    Sequences,
    open_prepared,
    verify_prepared,
    verify_sources,
    write_prepared,
)
from structattn.data.text.prepare import prepare_language_modeling
from structattn.data.tokenization.tokenizers import Tokenizer, build_tokenizer
from structattn.data.tokenization.vocabulary import Vocabulary

__all__ = [
    "Pairs",
    "PreparedFolder",
    "Sequences",
    "Tokenizer",
    "Vocabulary",
    "build_tokenizer",
    "open_prepared",
    "prepare_language_modeling",
    "verify_prepared",
    "verify_sources",
    "write_prepared",
]

"""Byte-pair encoding of many pre-tokens by the library tokenizers; equal to ``BytePairEncoding.segment`` on each."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from structattn.data.tokenization.optional_libraries import import_library

_UNKNOWN = "\n"  # the piece of characters that occur in no merge; no pre-token contains it


class BulkMerger:
    """Applies merges to many pre-tokens at once, in the library's threads.

    Args:
        merges: pairs of pieces in the order in which they were learned.

    Raises:
        UsageError: the library is not installed.
    """

    def __init__(self, merges: Iterable[tuple[str, str]]) -> None:
        tokenizers = import_library("tokenizers", "applying byte-pair encoding to a text")
        distinct = list(dict.fromkeys(merges))
        pieces = {
            _UNKNOWN,
            *(piece for left, right in distinct for piece in (*left, *right, left, right, left + right)),
        }
        vocabulary = {piece: index for index, piece in enumerate(sorted(pieces))}
        model = tokenizers.models.BPE(vocab=vocabulary, merges=distinct, unk_token=_UNKNOWN, fuse_unk=False)
        self._tokenizer: Any = tokenizers.Tokenizer(model)

    def __call__(self, pretokens: Sequence[str]) -> Iterator[list[str]]:
        """Yield the pieces of each pre-token."""
        for pretoken, encoding in zip(pretokens, self._tokenizer.encode_batch(pretokens), strict=True):
            yield [pretoken[start:end] for start, end in encoding.offsets]

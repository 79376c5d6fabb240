"""Byte-pair encoding of many pre-tokens by the library tokenizers; equal to ``BytePairEncoding.segment`` on each."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from structattn.text.tokenization.optional_libraries import import_library

_SEPARATOR = "\n"  # no pre-token contains it
_UNKNOWN = _SEPARATOR  # the piece of characters that occur in no merge
_AT_ONCE = 256  # pre-tokens in a call of the library, each of which takes some microseconds


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
        self._tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.CharDelimiterSplit(_SEPARATOR)
        self._pieces, self._unknown = sorted(pieces), vocabulary[_UNKNOWN]

    def __call__(self, pretokens: Sequence[str]) -> Iterator[list[str]]:
        """Yield the pieces of each pre-token."""
        groups = [pretokens[start : start + _AT_ONCE] for start in range(0, len(pretokens), _AT_ONCE)]
        texts = [_SEPARATOR.join(group) for group in groups]
        for group, text, encoding in zip(groups, texts, self._tokenizer.encode_batch(texts), strict=True):
            ids = encoding.ids
            if self._unknown in ids:
                pieces = [text[start:end] for start, end in encoding.offsets]
            else:
                pieces = [self._pieces[index] for index in ids]
            segmented: list[list[str]] = [[] for _ in group]
            for index, piece in zip(encoding.word_ids, pieces, strict=True):
                segmented[index].append(piece)
            yield from segmented

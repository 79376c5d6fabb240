"""Cutting of a stream of lines into blocks of equal length."""

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from structattn.text.tokenization.encoding import EncodedLines

LINES_IN_BATCH: Final = 1000


def cut_into_blocks(lines: Iterable[EncodedLines], length: int) -> Iterator[EncodedLines]:
    """Cut the end off every 1,000 lines so that the rest of them makes whole blocks of a stream.

    As in the published preprocessing of Li et al. (2024), lines are concatenated within batches of 1,000 and the
    remainder of each batch is dropped. Here every line ends in ``<eos>``, which counts; where a line is cut, ``<eos>``
    takes the place of its last token that would still fit. So windows of this length of the stream are the blocks.

    Args:
        lines: the lines of a text.
        length: the length of a block.
    """
    for batch in _batches(lines):
        ends = np.cumsum(batch.lengths + 1)
        total = int(ends[-1])
        kept = total - total % length
        whole = int(np.searchsorted(ends, kept, "right"))
        rest = kept - (int(ends[whole - 1]) if whole else 0)  # of the line that is cut
        lengths = np.append(batch.lengths[:whole], [rest - 1] if rest else [])
        yield EncodedLines(batch.tokens[: kept - len(lengths)], lengths.astype(np.int64))


def _batches(lines: Iterable[EncodedLines]) -> Iterator[EncodedLines]:
    """Yield the same lines, 1,000 at once."""
    rest = EncodedLines(np.zeros(0, np.int32), np.zeros(0, np.int64))
    for some in lines:
        rest = EncodedLines(*map(np.concatenate, zip(rest, some, strict=True)))
        while len(rest.lengths) >= LINES_IN_BATCH:
            batch, rest = _split(rest, LINES_IN_BATCH)
            yield batch
    if len(rest.lengths):
        yield rest


def _split(lines: EncodedLines, count: int) -> tuple[EncodedLines, EncodedLines]:
    num_tokens = int(lines.lengths[:count].sum())
    return (
        EncodedLines(lines.tokens[:num_tokens], lines.lengths[:count]),
        EncodedLines(lines.tokens[num_tokens:], lines.lengths[count:]),
    )

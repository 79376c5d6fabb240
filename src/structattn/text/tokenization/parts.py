"""Which part of a line, such as a word or a region, each of its tokens belongs to."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from os.path import commonprefix
from typing import Protocol


class Decoder(Protocol):
    """A tokenizer, with or without normalization."""

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to a line."""


def parts_of_tokens(decoder: Decoder, ids: Sequence[int], parts: Sequence[str]) -> list[int]:
    """Return the index of the part in which each token of a line begins.

    A token begins with its first character other than a space, or, if it has none, with the next one. So a space, and
    a token that crosses the boundary of two parts, count for one part only, whatever the tokenizer.

    Args:
        decoder: decodes the ids.
        ids: of the line.
        parts: the line as it is decoded, cut into parts, some of them perhaps empty; spaces do not count.

    Cost: O(n²) for n tokens, all of whose beginnings are decoded.

    Raises:
        ValueError: the parts together are not the line.
    """
    ends = list(accumulate(len(_without_spaces(part)) for part in parts))
    *beginnings, whole = (_without_spaces(decoder.decode(ids[:count])) for count in range(len(ids) + 1))
    if len(whole) != (ends[-1] if ends else 0):
        raise ValueError(f"the line {decoder.decode(ids)!r:.60} does not consist of {list(parts)!r:.120}")
    starts = (len(commonprefix([each, whole])) for each in beginnings)  # noqa: RUF071  # of the characters that are whole
    return [min(bisect_right(ends, start), len(parts) - 1) for start in starts]


def _without_spaces(text: str) -> str:
    return "".join(text.split())

"""An independent, slow implementation of byte-pair encoding."""

from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pytest


def learn(words, count):
    """Merge the most frequent pair; ties: lower numbers, where characters are numbered first and by code point."""
    texts = {word: list(word) for word in words}
    number = {character: index for index, character in enumerate(sorted({c for word in words for c in word}))}
    merges = []
    while len(merges) < count:
        pairs = Counter()
        for word, times in words.items():
            for pair in pairwise(texts[word]):
                pairs[pair] += times
        if not pairs:
            break
        left, right = min(pairs, key=lambda pair: (-pairs[pair], number[pair[0]], number[pair[1]]))
        merges.append((left, right))
        number.setdefault(left + right, len(number))
        texts = {word: joined(pieces, left, right) for word, pieces in texts.items()}
    return merges


def joined(pieces, left, right):
    """Join all neighbours (left, right) from left to right."""
    result, index = [], 0
    while index < len(pieces):
        if tuple(pieces[index : index + 2]) == (left, right):
            result, index = [*result, left + right], index + 2
        else:
            result, index = [*result, pieces[index]], index + 1
    return result


def apply(merges, word):
    """Apply the first learned merge that is possible until there is none."""
    pieces = list(word)
    while True:
        allowed = [merge for merge in merges if merge in list(pairwise(pieces))]
        if not allowed:
            return pieces
        pieces = joined(pieces, *allowed[0])


@pytest.fixture(scope="session")
def definition():
    return SimpleNamespace(learn=learn, apply=apply)

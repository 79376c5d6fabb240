"""Translations of source tokens, learned from parallel text (IBM Model 1, Brown et al. 1993, section 4.2)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int32, Int64
from numpy.typing import NDArray

from structattn.text.folders.pairs import Pairs

_ITERATIONS = 5
_LINKS_AT_ONCE = 2**23  # pairs of a source and a target token in one sentence pair; bounds the memory to about 0.5 GB


def likeliest_translations(
    pairs: Pairs, num_source: int, num_target: int, count: int, advance: Callable[[int], object] = lambda pairs: None
) -> Int32[np.ndarray, "source count"]:
    """Return the ``count`` target tokens that are most often aligned with each source token, -1 after the last one.

    The number of alignments is the expected one after 5 iterations of EM from uniform probabilities. Model 1 says that
    each target token is the translation of one source token of its sentence, or of none, with probability t(e | f).
    Parts of the text with 8 million links each are learned independently, and their numbers added.

    Cost: O(links) time; memory for the links of a part and for the distinct links.

    Args:
        pairs: sentence pairs.
        num_source: the size of the source vocabulary.
        num_target: the size of the target vocabulary.
        count: of target tokens.
        advance: called with the number of sentence pairs that have been processed since.
    """
    keys: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    counts: NDArray[Any] = np.zeros(0)
    for first, last in _parts(pairs):
        new_keys, new_counts = _expected_alignments(_links(pairs, first, last), num_target)
        keys, inverse = np.unique(np.concatenate([keys, new_keys]), return_inverse=True)
        counts = np.bincount(inverse, np.concatenate([counts, new_counts]), minlength=len(keys))
        advance(last - first)
    return _first_of_each(keys // num_target, keys % num_target, counts, num_source, count)


@dataclass(frozen=True)
class _Links:
    """Each target token with each source token of its sentence, and with none, whose id is 0.

    Args:
        source: ids.
        target: ids.
        starts: the first link of each target token.
    """

    source: Int64[np.ndarray, " links"]
    target: Int64[np.ndarray, " links"]
    starts: Int64[np.ndarray, " tokens"]


def _parts(pairs: Pairs) -> Iterator[tuple[int, int]]:
    """Return the beginnings and ends of parts of the text, one sentence pair at least."""
    ends = np.cumsum((pairs.source.lengths + 1) * pairs.target.lengths)
    first = 0
    while first < len(pairs):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _LINKS_AT_ONCE, "right")))
        yield first, last
        first = last


def _links(pairs: Pairs, first: int, last: int) -> _Links:
    sources, targets = pairs.source, pairs.target
    lengths, target_lengths = sources.lengths[first:last] + 1, targets.lengths[first:last]
    of_token = np.repeat(lengths, target_lengths)  # the number of links of each target token
    starts = np.cumsum(of_token) - of_token
    place = np.arange(int(of_token.sum())) - np.repeat(starts, of_token)  # 0 for no source token
    begin = np.repeat(np.repeat(sources.offsets[first:last] - sources.offsets[first], target_lengths), of_token)
    none_and_tokens = np.concatenate([[0], sources.tokens[sources.offsets[first] : sources.offsets[last]]])
    source = none_and_tokens[np.where(place == 0, 0, begin + place)]
    tokens = targets.tokens[targets.offsets[first] : targets.offsets[last]]
    return _Links(source, np.repeat(tokens.astype(np.int64), of_token), starts)


def _expected_alignments(
    links: _Links, num_target: int
) -> tuple[Int64[np.ndarray, " distinct"], Float64[np.ndarray, " distinct"]]:
    """Return the distinct links as source * num_target + target, and how often they are expected to be alignments."""
    keys, inverse = np.unique(links.source * num_target + links.target, return_inverse=True)
    if not len(keys):
        return keys, np.zeros(0)
    sources = keys // num_target
    sizes = np.diff(np.append(links.starts, len(inverse)))
    translation = np.ones(len(keys))  # t(target | source), up to a factor
    for _ in range(_ITERATIONS):
        posteriors = translation[inverse]
        posteriors /= np.repeat(np.add.reduceat(posteriors, links.starts), sizes)
        counts = np.bincount(inverse, posteriors, minlength=len(keys))
        translation = counts / np.bincount(sources, counts)[sources]
    return keys, counts


def _first_of_each(
    sources: Int64[np.ndarray, " distinct"],
    targets: Int64[np.ndarray, " distinct"],
    counts: Float64[np.ndarray, " distinct"],
    num_source: int,
    count: int,
) -> Int32[np.ndarray, "source count"]:
    """Return the targets with the greatest counts of each source, the lower id first among equals."""
    order = np.lexsort((targets, -counts, sources))
    sources, targets = sources[order], targets[order]
    rank = np.arange(len(sources)) - np.searchsorted(sources, sources)
    chosen = np.full((num_source, count), -1, dtype=np.int32)
    kept = (rank < count) & (sources > 0)
    chosen[sources[kept], rank[kept]] = targets[kept]
    return chosen

"""Tree regularization: a loss that makes hidden states of constituents independent of what precedes them.

Nandi et al. (2025, section 3). Legend: h_j the hidden state of position j of T, from 0; o(i, j) the norm of the part of
h_j that is orthogonal to h_(i-1), the independence of the span i..j of what precedes it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.operators.common.checks import (
    checked_false,
    checked_lengths,
    checked_range,
    computing_precision,
    inside,
    require_shape,
    without_autocast,
)
from structattn.support.shapes import Bool, Float, Int, Lengths

__all__ = ["tree_regularization", "tree_splits"]

Split = tuple[int, int, int]
"""First position of a span, last position of its left part, last position of the span."""
_LEAST_NORM = 1e-12


def tree_regularization(
    hidden: Float[Tensor, "batch time size"],
    splits: Int[Tensor, "splits 4"],
    *,
    word_starts: Bool[Tensor, "batch time"] | None = None,
    lengths: Lengths = None,
) -> Float[Tensor, ""]:
    """Return the loss of hidden states for given binary trees: -log of the probability of each true split.

    A span i..j can be split after each k at which a word ends, i <= k < j, with the probability softmax_k s(k),

        s(k) = o(i, k) + o(k+1, j) + o(k+1, k+1),   o(i, j) = |h_j - (h_j . u) u|,   u = h_(i-1) / |h_(i-1)|,

    o(0, j) = 0. (The paper adds o(j+1, j+1), which is the same for all k and has no effect.) Spans of two positions, or
    with fewer than two places to split, do not count. The loss is the mean over the sequences of the mean over their
    spans; a sequence without any counts as 0. It has no parameters, and its scale grows with that of h.

    Cost: O(B T^2 m) time and memory, and O(N T) for the spans.

    Args:
        hidden: h, of the words alone: without ``<bos>``. Published: the first quarter of the numbers of a middle layer.
        splits: sequence b, first position i, true k, last position j of each of N spans with 0 <= i <= k < j.
        word_starts: true where a word begins, for tokens that are parts of words; None: at each position.
        lengths: the number of positions of each sequence; all T where None. What is past it has no influence.

    Raises:
        ValueError: shapes, dtypes or lengths do not fit, or a split is none of its sequence.
    """
    require_shape("hidden", hidden, (None, None, None), "(B, T, m)")
    batch, time, _ = hidden.shape
    splits = _checked_splits(splits, batch, time)
    (hidden,), dtype = computing_precision(hidden=hidden)
    ends = checked_lengths(lengths, batch, time, hidden.device)
    if word_starts is None:
        word_starts = torch.ones(batch, time, dtype=torch.bool, device=hidden.device)
    _require_mask(word_starts, batch, time)
    sequence, first, true, last = splits.unbind(1)
    allowed = _places(first, last, word_starts[sequence])
    counts = (last - first >= 2) & (allowed.sum(1) >= 2)
    at_true = torch.zeros_like(allowed).scatter(1, true[:, None], value=True)
    wrong = (last >= ends[sequence]) | (first > true) | (true >= last) | (counts & ~(at_true & allowed).any(1))
    message = "splits: expected i <= k < j within the sequence, and a word that begins at k + 1"
    counts = counts & checked_false(wrong, message)
    with without_autocast(hidden.device):
        scores = _scores(hidden, sequence, first, last, ends).masked_fill(~allowed, -torch.inf)
        # Spans that do not count get scores of one place, so that no gradient is undefined.
        scores = torch.where(counts[:, None], scores, torch.where(at_true, 0.0, -torch.inf).to(scores.dtype))
        losses = -torch.log_softmax(scores, 1).gather(1, true[:, None])[:, 0]
        sums = losses.new_zeros(batch).index_add(0, sequence, losses)
        numbers = losses.new_zeros(batch).index_add(0, sequence, counts.to(losses.dtype))
        return (sums / numbers.clamp(min=1)).sum().div(max(batch, 1)).to(dtype)


def _require_mask(word_starts: Tensor, batch: int, time: int) -> None:
    require_shape("word_starts", word_starts, (batch, time), "(B, T)")
    if word_starts.dtype != torch.bool:
        raise ValueError(f"word_starts has dtype {word_starts.dtype}; expected torch.bool")


@torch.no_grad()
def tree_splits(
    hidden: Float[Tensor, "batch time size"],
    *,
    word_starts: Bool[Tensor, "batch time"] | None = None,
    lengths: Lengths = None,
) -> list[list[Split]]:
    """Return the tree of each sequence, as its splits (i, k, j): top-down, that with the largest score of each span.

    Ties go to the first k. Arguments and errors as for ``tree_regularization``. Cost: O(B T^2 (m + depth)).
    """
    require_shape("hidden", hidden, (None, None, None), "(B, T, m)")
    batch, time, _ = hidden.shape
    (hidden,), _ = computing_precision(hidden=hidden)
    ends = checked_lengths(lengths, batch, time, hidden.device)
    starts = torch.ones(batch, time, dtype=torch.bool) if word_starts is None else word_starts.cpu()
    _require_mask(starts, batch, time)
    with without_autocast(hidden.device):
        independence = _independence(hidden, ends).cpu()
    rows = zip(independence, starts.tolist(), ends.tolist(), strict=True)
    return [greedy_splits(table, words, length) for table, words, length in rows]


def greedy_splits(independence: Float[Tensor, "first last"], word_starts: Sequence[bool], length: int) -> list[Split]:
    """Return the best split of the whole, then those of both parts, down to words.

    Args:
        independence: o(i, j).
        word_starts: whether a word begins at each position.
        length: the number of positions.
    """
    table, splits, spans = independence.tolist(), [], [(0, length - 1)]
    while spans:
        i, j = spans.pop()
        places = [k for k in range(i, j) if word_starts[k + 1]]
        if places:
            best = max(places, key=lambda k: table[i][k] + table[k + 1][j] + table[k + 1][k + 1])
            splits.append((i, best, j))
            spans += [(best + 1, j), (i, best)]
    return splits


def _checked_splits(splits: Tensor, batch: int, time: int) -> Tensor:
    require_shape("splits", splits, (None, 4), "(N, 4)")
    if splits.is_floating_point() or splits.dtype == torch.bool:
        raise ValueError(f"splits has dtype {splits.dtype}; expected integers")
    sequence = checked_range(splits[:, 0], 0, batch - 1, "sequences of splits")
    return torch.cat([sequence[:, None], checked_range(splits[:, 1:], 0, time - 1, "positions of splits")], 1)


def _places(first: Tensor, last: Tensor, word_starts: Tensor) -> Bool[Tensor, "splits time"]:
    """Return after which k each span can be split."""
    k = torch.arange(word_starts.shape[1], device=first.device)
    begins_next = F.pad(word_starts[:, 1:], (0, 1))
    return (k >= first[:, None]) & (k < last[:, None]) & begins_next


def _scores(
    hidden: Tensor, sequence: Tensor, first: Tensor, last: Tensor, ends: Tensor
) -> Float[Tensor, "splits time"]:
    independence = _independence(hidden, ends)
    left = independence[sequence, first, :-1]
    right = independence[sequence, 1:, last]
    return left + right + independence.diagonal(dim1=1, dim2=2)[sequence, 1:]


def _independence(hidden: Tensor, ends: Tensor) -> Float[Tensor, "batch first last"]:
    """Return o(i, j) for i and j from 0 to T; zeros for i = 0 and i > j, and for j at or past the length."""
    time = hidden.shape[1]
    here = inside(ends, time)
    hidden = torch.where(here[..., None], hidden, 1)  # the direction of a zero has no derivative
    unit = F.normalize(hidden, dim=-1, eps=_LEAST_NORM)
    along = (unit @ hidden.mT)[..., None] * unit[:, :, None]
    position = torch.arange(time, device=hidden.device)
    is_span = (position[:, None] < position) & here[:, None]
    orthogonal = torch.where(is_span[..., None], hidden[:, None] - along, 1)
    norms = torch.where(is_span, torch.linalg.vector_norm(orthogonal, dim=-1), 0)
    return F.pad(norms, (0, 1, 1, 0))

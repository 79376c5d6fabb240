"""The keys that a query of hard-coded attention can see at all, which are few and stand together."""

import dataclasses

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.operators.gaussian_attention.gaussians import Gaussians
from structattn.operators.gaussian_attention.reference import Rows, weights_of

Band = tuple[Float[Tensor, "#batch heads #queries taps"], Int[Tensor, "#batch heads queries"]]


def band(heads: Gaussians, rows: Rows) -> Band:
    """The weights of each query's band, and the index of its first key; all other weights are zero.

    A band lies around round(f(i)), 2 * reach + 1 keys wide. Where every query's is the same, one row is made.
    """
    same = heads.ratio == 1 and not heads.normalize
    return _band_of_all(heads, rows) if same else _bands(heads, rows)


def _band_of_all(heads: Gaussians, rows: Rows) -> Band:
    """One row for all queries, as query 0 has it; keys outside of the sequence are left to the kernel to leave out.

    From one query to the next the band moves by one key. Cost: O(H * K + T).
    """
    reach = heads.reach(rows.dtype)
    distances = max(0, rows.queries + rows.keys - 1)  # as many as there are between all queries and all keys
    relative = rows.first - rows.first_key + torch.arange(rows.queries, device=rows.device)
    if 2 * reach + 1 <= distances:
        count, start = 2 * reach + 1, torch.floor(heads.centres(0, 1, rows.device)[1] + 0.5).long() - reach
    else:
        earliest = rows.first_key - (rows.first + rows.queries - 1)
        count, start = distances, torch.full((len(heads.offsets), 1), earliest, device=rows.device)
    everywhere = dataclasses.replace(rows, queries=1, keys=2**40, first=0, first_key=0, ends=None)
    return weights_of(heads, everywhere, start[None], count), start[None] + relative


def _bands(heads: Gaussians, rows: Rows) -> Band:
    """A row for each query, its band moved to where there are keys, so that the nearest of them are inside.

    The ends of sequences matter to normalised weights only: otherwise one table serves all. Cost: O(B * H * T * K),
    with B = 1 where one table serves.
    """
    if not heads.normalize:
        rows = dataclasses.replace(rows, ends=None)
    reach = heads.reach(rows.dtype)
    count = min(2 * reach + 1, rows.keys)
    whole, rest = heads.centres(rows.first, rows.queries, rows.device)
    wanted = whole + torch.floor(rest + 0.5).long() - reach - rows.first_key
    starts = torch.minimum(wanted, rows.ends_seen(heads.causal) - count).clamp(min=0)
    return weights_of(heads, rows, starts, count), starts

"""The band of consecutive keys outside of which a query's Gaussian weights are zero."""

import dataclasses

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.operators.gaussian_attention.gaussians import Gaussians
from structattn.operators.gaussian_attention.reference import Rows, weights_of

Band = tuple[Float[Tensor, "#batch heads #queries taps"], Int[Tensor, "#batch heads queries"]]


def band(heads: Gaussians, rows: Rows) -> Band:
    """Return the weights of each query's band and the index of its first key; all other weights are zero.

    A band is centred at round(f(i)) and 2 * radius + 1 keys wide. If all queries have the same weights,
    there is one row.
    """
    same = heads.ratio == 1 and not heads.normalize
    return _band_of_all(heads, rows) if same else _bands(heads, rows)


def _band_of_all(heads: Gaussians, rows: Rows) -> Band:
    """Return one row for all queries, that of query 0; the kernel skips keys outside of the sequence.

    From one query to the next the band moves by one key. Cost: O(H * K + T).
    """
    radius = heads.radius(rows.dtype)
    distances = max(0, rows.queries + rows.keys - 1)  # as many as there are between all queries and all keys
    relative = rows.first - rows.first_key + torch.arange(rows.queries, device=rows.device)
    if 2 * radius + 1 <= distances:
        count, start = 2 * radius + 1, torch.floor(heads.centres(0, 1, rows.device)[1] + 0.5).long() - radius
    else:
        earliest = rows.first_key - (rows.first + rows.queries - 1)
        count, start = distances, torch.full((len(heads.offsets), 1), earliest, device=rows.device)
    everywhere = dataclasses.replace(rows, queries=1, keys=2**40, first=0, first_key=0, ends=None)
    return weights_of(heads, everywhere, start[None], count), start[None] + relative


def _bands(heads: Gaussians, rows: Rows) -> Band:
    """Return a row for each query, with bands shifted into the sequence, so that they contain the nearest keys.

    The ends of sequences matter to normalised weights only: otherwise one table serves all. Cost: O(B * H * T * K),
    with B = 1 where one table serves.
    """
    if not heads.normalize:
        rows = dataclasses.replace(rows, ends=None)
    radius = heads.radius(rows.dtype)
    count = min(2 * radius + 1, rows.keys)
    whole, rest = heads.centres(rows.first, rows.queries, rows.device)
    wanted = whole + torch.floor(rest + 0.5).long() - radius - rows.first_key
    starts = torch.minimum(wanted, rows.ends_seen(heads.causal) - count).clamp(min=0)
    return weights_of(heads, rows, starts, count), starts

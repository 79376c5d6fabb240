"""Gated DeltaProduct in chunks: matrix products within a chunk, and a scan over the chunks; see DERIVATION.md.

Legend: each Householder step of a chunk of tokens is a row; G is the sum of the log-decays of the chunk up to a row,
A the strictly lower triangular matrix of the system for the updates of all rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from structattn.support.shapes import Float

ROWS = 64
"""The number of Householder steps of a chunk, about."""


class _Chunks(NamedTuple):
    """The parts of all chunks, (B, H, N, ..): what the scan over N chunks needs.

    Args:
        query: q / sqrt(a) of each token.
        key: k of each row.
        cumulative: G of each row.
        value: the solve of diag(beta) V.
        erased: the solve of diag(beta e^G) K.
    """

    query: Float[Tensor, "batch heads chunks tokens key"]
    key: Float[Tensor, "batch heads chunks rows key"]
    cumulative: Float[Tensor, "batch heads chunks rows"]
    value: Float[Tensor, "batch heads chunks rows value"]
    erased: Float[Tensor, "batch heads chunks rows key"]


def delta_product_chunked(
    query: Float[Tensor, "batch heads time key"],
    key: Float[Tensor, "batch heads time steps key"],
    value: Float[Tensor, "batch heads time steps value"],
    beta: Float[Tensor, "batch heads time steps"],
    log_decay: Float[Tensor, "batch heads time"],
) -> Float[Tensor, "batch heads time value"]:
    """Return the readings of all tokens. Cost: O(T m (L (a + b) + a b)) for each head, in T m / L steps in sequence."""
    time, steps = beta.shape[2:]
    if time == 0:
        return value[..., 0, :]
    tokens = min(max(1, ROWS // steps), time)
    chunks = _chunks(tokens, query, key, value, beta, log_decay)
    own = _readings_within(chunks, steps)
    last = chunks.cumulative[..., -1:]
    kept = torch.exp(last)[..., None]
    added = torch.exp(last - chunks.cumulative)[..., None] * chunks.key
    decayed = torch.exp(chunks.cumulative[..., steps - 1 :: steps])[..., None] * chunks.query
    readings, state = [], query.new_zeros(*query.shape[:2], query.shape[-1], value.shape[-1])
    for n in range(chunks.query.shape[2]):
        update = chunks.value[:, :, n] - chunks.erased[:, :, n] @ state
        readings.append(decayed[:, :, n] @ state + own[:, :, n] @ update)
        state = kept[:, :, n] * state + added[:, :, n].mT @ update
    return torch.stack(readings, 2).flatten(2, 3)[:, :, :time]


def _chunks(tokens: int, query: Tensor, key: Tensor, value: Tensor, beta: Tensor, log_decay: Tensor) -> _Chunks:
    missing = -query.shape[2] % tokens
    query = _split(query * query.shape[-1] ** -0.5, missing, tokens)
    key, value = (_split(part, missing, tokens).flatten(3, 4) for part in (key, value))
    beta = _split(beta[..., None], missing, tokens).flatten(3)
    decays = F.pad(log_decay[..., None], (0, beta.shape[3] // tokens - 1))  # each token's first row decays
    cumulative = _split(decays[..., None], missing, tokens).flatten(3).cumsum(-1)
    among = beta[..., None] * (key @ key.mT) * _decay_between(cumulative, cumulative)
    right = torch.cat([beta[..., None] * value, (beta * torch.exp(cumulative))[..., None] * key], -1)
    # The diagonal and what is above it are not read.
    solved = torch.linalg.solve_triangular(among.tril(-1), right, upper=False, unitriangular=True)
    return _Chunks(query, key, cumulative, *solved.split([value.shape[-1], key.shape[-1]], -1))


def _readings_within(chunks: _Chunks, steps: int) -> Float[Tensor, "batch heads chunks tokens rows"]:
    """Return the weight of each row's update in each token's reading."""
    ends = chunks.cumulative[..., steps - 1 :: steps]
    return (chunks.query @ chunks.key.mT) * _decay_between(ends, chunks.cumulative, steps)


def _decay_between(later: Tensor, earlier: Tensor, steps: int = 1) -> Tensor:
    """Return e^(G_l - G_j) where row j is not after the last row of l, which are ``steps`` rows each; else 0."""
    rows = torch.arange(earlier.shape[-1], device=earlier.device)
    last = torch.arange(1, later.shape[-1] + 1, device=later.device) * steps
    difference = later[..., :, None] - earlier[..., None, :]
    return torch.exp(difference.masked_fill(rows >= last[:, None], -torch.inf))  # which could overflow


def _split(x: Tensor, missing: int, tokens: int) -> Tensor:
    """Return (B, H, N, C, ..), with zeros for what is missing in the last chunk."""
    padded = torch.cat([x, x.new_zeros(*x.shape[:2], missing, *x.shape[3:])], 2) if missing else x
    return padded.reshape(*x.shape[:2], padded.shape[2] // tokens, tokens, *x.shape[3:])

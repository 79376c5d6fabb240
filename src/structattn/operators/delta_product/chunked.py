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
        decay: e^(G_l - G_j) for each row l, and j up to l; else 0.
        value: the solve of diag(beta) V.
        erased: the solve of diag(beta e^G) K.
    """

    query: Float[Tensor, "batch heads chunks tokens key"]
    key: Float[Tensor, "batch heads chunks rows key"]
    cumulative: Float[Tensor, "batch heads chunks rows"]
    decay: Float[Tensor, "batch heads chunks rows rows"]
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
    num_chunks = 1 + (time * steps - 1) // ROWS
    tokens = 1 + (time - 1) // num_chunks  # chunks of one length, so that the last is hardly padded
    chunks = _chunks(tokens, query, key, value, beta, log_decay)
    own = _readings_within(chunks, steps)
    kept = torch.exp(chunks.cumulative[..., -1:, None])
    added = chunks.decay[..., -1, :, None] * chunks.key
    decayed = torch.exp(chunks.cumulative[..., steps - 1 :: steps])[..., None] * chunks.query
    readings, state = [], query.new_zeros(*query.shape[:2], query.shape[-1], value.shape[-1])
    for n in range(chunks.query.shape[2]):
        update = chunks.value[:, :, n] - chunks.erased[:, :, n] @ state
        readings.append(decayed[:, :, n] @ state + own[:, :, n] @ update)
        state = kept[:, :, n] * state + added[:, :, n].mT @ update
    return torch.stack(readings, 2).flatten(2, 3)[:, :, :time]


def _chunks(tokens: int, query: Tensor, key: Tensor, value: Tensor, beta: Tensor, log_decay: Tensor) -> _Chunks:
    missing = -query.shape[2] % tokens
    query = _split(query * max(query.shape[-1], 1) ** -0.5, missing, tokens)
    key, value = (_split(part, missing, tokens).flatten(3, 4) for part in (key, value))
    beta = _split(beta[..., None], missing, tokens).flatten(3)
    decays = F.pad(log_decay[..., None], (0, beta.shape[3] // tokens - 1))  # each token's first row decays
    decays = _split(decays[..., None], missing, tokens).flatten(3)
    cumulative, decay = decays.cumsum(-1), _decay_between(decays)
    among = beta[..., None] * (key @ key.mT) * decay
    right = torch.cat([beta[..., None] * value, (beta * torch.exp(cumulative))[..., None] * key], -1)
    # The diagonal and what is above it are not read.
    solved = torch.linalg.solve_triangular(among.tril(-1), right, upper=False, unitriangular=True)
    return _Chunks(query, key, cumulative, decay, *solved.split([value.shape[-1], key.shape[-1]], -1))


def _readings_within(chunks: _Chunks, steps: int) -> Float[Tensor, "batch heads chunks tokens rows"]:
    """Return the weight of each row's update in each token's reading."""
    return (chunks.query @ chunks.key.mT) * chunks.decay[..., steps - 1 :: steps, :]


def _decay_between(decays: Float[Tensor, "*chunks rows"]) -> Float[Tensor, "*chunks rows rows"]:
    """Return e^(G_l - G_j) where row j is not after row l, else 0.

    The decays from j + 1 to l are summed: a difference of sums has lost the small ones after a large one.
    """
    ones = torch.ones(decays.shape[-1], decays.shape[-1], dtype=torch.bool, device=decays.device)
    sums = torch.where(ones.tril(-1), decays[..., None], 0).cumsum(-2)
    return torch.exp(sums.masked_fill(ones.triu(1), -torch.inf))


def _split(x: Tensor, missing: int, tokens: int) -> Tensor:
    """Return (B, H, N, C, ..), with zeros for what is missing in the last chunk."""
    padded = torch.cat([x, x.new_zeros(*x.shape[:2], missing, *x.shape[3:])], 2) if missing else x
    return padded.reshape(*x.shape[:2], padded.shape[2] // tokens, tokens, *x.shape[3:])

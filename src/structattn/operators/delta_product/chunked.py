"""Gated DeltaProduct in chunks: matrix products within a chunk, and a scan over the chunks; see DERIVATION.md.

Legend: each Householder step of a chunk of tokens is a row; G is the sum of the log-decays of the chunk up to a token,
which all its rows share; A the strictly lower triangular matrix of the system for the updates of all rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from structattn.operators.common.differentiation import transforms_active
from structattn.operators.delta_product.reference import delta_product_reference
from structattn.support.shapes import Bool, Float

ROWS = 64
"""The number of Householder steps of a chunk, about."""


class _Chunks(NamedTuple):
    """The parts of all chunks, (B, H, N, ..): what the scan over N chunks needs.

    Args:
        query: q / sqrt(a) of each token.
        key: k of each row.
        cumulative: G of each token.
        decay: e^(G_s - G_t) for each token s, and each row of the tokens t up to s; else 0.
        value: the solve of diag(beta) V.
        erased: the solve of diag(beta e^G) K.
    """

    query: Float[Tensor, "batch heads chunks tokens key"]
    key: Float[Tensor, "batch heads chunks rows key"]
    cumulative: Float[Tensor, "batch heads chunks tokens"]
    decay: Float[Tensor, "batch heads chunks tokens rows"]
    value: Float[Tensor, "batch heads chunks rows value"]
    erased: Float[Tensor, "batch heads chunks rows key"]


def delta_product_chunked(
    query: Float[Tensor, "batch heads time key"],
    key: Float[Tensor, "batch heads time steps key"],
    value: Float[Tensor, "batch heads time steps value"],
    beta: Float[Tensor, "batch heads time steps"],
    log_decay: Float[Tensor, "batch heads time"],
) -> Float[Tensor, "batch heads time value"]:
    """Return the readings of all tokens: NaN from the first token on that would put NaN or infinity into the state.

    Cost: O(T m (L (a + b) + a b)) for each head, in T m / L steps in sequence; on a CPU in eager mode also that of the
    definition, where a reading is not finite.
    """
    broken = _broken(key, value, beta, log_decay)
    readable = key.device.type == "cpu" and not torch.compiler.is_compiling() and not transforms_active()
    if readable and not bool(broken.any()):
        readings = _readings(query, key, value, beta, log_decay)
        if bool(readings.isfinite().all()):
            return readings
        # Zeros times what has overflowed later in a chunk are NaN.
        return delta_product_reference(query, key, value, beta, log_decay)
    key, value = (part.masked_fill(broken[..., None, None], 0) for part in (key, value))
    beta, log_decay = beta.masked_fill(broken[..., None], 0), log_decay.masked_fill(broken, 0)
    return _readings(query, key, value, beta, log_decay).masked_fill(broken[..., None], torch.nan)


def _broken(key: Tensor, value: Tensor, beta: Tensor, log_decay: Tensor) -> Bool[Tensor, "batch heads time"]:
    """Return at which tokens the state is no longer finite; 0 * NaN would bring it to earlier ones of a chunk, too."""
    finite = key.isfinite().all(-1) & value.isfinite().all(-1) & beta.isfinite()
    return (~(finite.all(-1) & (log_decay < torch.inf))).cumsum(2) > 0


def _readings(query: Tensor, key: Tensor, value: Tensor, beta: Tensor, log_decay: Tensor) -> Tensor:
    time, steps = beta.shape[2:]
    if time == 0:
        return value[..., 0, :]
    num_chunks = 1 + (time * steps - 1) // ROWS
    tokens = 1 + (time - 1) // num_chunks  # chunks of one length, so that the last is hardly padded
    chunks = _chunks(tokens, query, key, value, beta, log_decay)
    own = (chunks.query @ chunks.key.mT) * chunks.decay  # the weight of each row's update in each token's reading
    kept = torch.exp(chunks.cumulative[..., -1:, None])
    added = chunks.decay[..., -1, :, None] * chunks.key
    decayed = torch.exp(chunks.cumulative)[..., None] * chunks.query
    readings, state = [], query.new_zeros(*query.shape[:2], query.shape[-1], value.shape[-1])
    for n in range(chunks.query.shape[2]):
        update = chunks.value[:, :, n] - chunks.erased[:, :, n] @ state
        readings.append(decayed[:, :, n] @ state + own[:, :, n] @ update)
        state = kept[:, :, n] * state + added[:, :, n].mT @ update
    return torch.stack(readings, 2).flatten(2, 3)[:, :, :time]


def _chunks(tokens: int, query: Tensor, key: Tensor, value: Tensor, beta: Tensor, log_decay: Tensor) -> _Chunks:
    missing = -query.shape[2] % tokens
    query = _split(query * max(query.shape[-1], 1) ** -0.5, missing, tokens)
    key, value, beta = (_split(part, missing, tokens) for part in (key, value, beta[..., None]))
    decays = _split(log_decay[..., None], missing, tokens).squeeze(-1)
    cumulative, decay = decays.cumsum(-1), _decay_between(decays).repeat_interleave(key.shape[-2], -1)
    keys, weighted = key.flatten(3, 4), beta * key
    among = (weighted.flatten(3, 4) @ keys.mT) * decay.repeat_interleave(key.shape[-2], -2)
    right = torch.cat([beta * value, torch.exp(cumulative)[..., None, None] * weighted], -1).flatten(3, 4)
    # The diagonal and what is above it are not read.
    solved = torch.linalg.solve_triangular(among.tril(-1), right, upper=False, unitriangular=True)
    return _Chunks(query, keys, cumulative, decay, *solved.split([value.shape[-1], key.shape[-1]], -1))


def _decay_between(decays: Float[Tensor, "*chunks tokens"]) -> Float[Tensor, "*chunks tokens tokens"]:
    """Return e^(G_s - G_t) where token t is not after token s, else 0.

    The decays from t + 1 to s are summed: a difference of sums has lost the small ones after a large one.
    """
    ones = torch.ones(decays.shape[-1], decays.shape[-1], dtype=torch.bool, device=decays.device)
    sums = torch.where(ones.tril(-1), decays[..., None], 0).cumsum(-2)
    return torch.exp(sums.masked_fill(ones.triu(1), -torch.inf))


def _split(x: Tensor, missing: int, tokens: int) -> Tensor:
    """Return (B, H, N, C, ..), with zeros for what is missing in the last chunk."""
    padded = torch.cat([x, x.new_zeros(*x.shape[:2], missing, *x.shape[3:])], 2) if missing else x
    return padded.reshape(*x.shape[:2], padded.shape[2] // tokens, tokens, *x.shape[3:])

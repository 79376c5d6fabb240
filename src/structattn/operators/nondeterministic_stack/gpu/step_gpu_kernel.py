"""One step of a batch of sequences, in two launches; all weights are logarithms in doubles, and so of any size.

    gamma[j,t][c,d]   weight of all ways from configuration c at time j to d at time t that never pop the top item of j
    w[k,t][(u,y),r]   weight of all ways from (u,y) at time k that push at k+1 and pop that item at t, into state r

    x[c,r]              = Σ_e gamma[k+1,t-1][c,e] Pop_t[e,r]
    w[k,t][c,r]         = Σ_d Push_{k+1}[c,d] x[d,r]                                `uncover`, for all k at once
    gamma[j,t][c,(s,z)] = Σ_e gamma[j,t-1][c,e] Repl_t[e,(s,z)] + Σ_{k=j..t-2,u} gamma[j,k][c,(u,z)] w[k,t][(u,z),s]
    alpha_t[r,y]        = Σ_c alpha_{t-1}[c] (Push_t + Repl_t)[c,(r,y)] + Σ_{k,u} alpha_k[u,y] w[k,t][(u,y),r]

`advance` has a program for each row j of gamma, and one for each coordinate of the vectors, for E_t and the reading by
(5) of DERIVATION.md. With gamma, unlike with W alone, no row of a step waits for another.

A step leaves one record of doubles for each sequence, the column of its time t: log alpha (C), the logits of push and
replace (C, C) and pop (C, Q), the value (M), E (C, M), and gamma[j,t] (C, C) for j = t, t-1, .. `addresses` (B, t)
are those of each sequence's columns of times 0 .. t-1. So sequences share the columns of a common past, and a column is
never copied or changed.
"""

import triton
import triton.language as tl

from structattn.operators.nondeterministic_stack.gpu.prepare_gpu_kernel import finite, log_sum

INFINITY = tl.constexpr(float("inf"))
LARGEST = tl.constexpr(2.0**46)  # log-weight of which the rounding error is 2^-6: the limit of the definition


@triton.jit
def _column(addresses, k, mask):
    """Return where the columns of times k begin."""
    return tl.load(addresses + k, mask=mask, other=0).to(tl.pointer_type(tl.float64))


@triton.jit
def _vectors(Q: tl.constexpr, S: tl.constexpr, M):
    """Return where E begins in a column."""
    return Q * S * (1 + 2 * Q * S + Q) + M


@triton.jit
def _gammas(Q: tl.constexpr, S: tl.constexpr, M):
    """Return where gamma begins in a column."""
    return _vectors(Q, S, M) + Q * S * M


@triton.jit
def _with_terms(top, sums, x, axis: tl.constexpr):
    """Add exp x along an axis to ``sums``, which are relative to the exponential of the largest term, ``top``."""
    largest = tl.maximum(top, tl.max(x, axis))
    scale = finite(largest)
    terms = tl.exp((x - tl.expand_dims(scale, axis)).to(sums.dtype))
    return largest, sums * tl.exp((top - scale).to(sums.dtype)) + tl.sum(terms, axis)


@triton.jit
def _total(top, sums, axis: tl.constexpr):
    """Return the logarithm of such sums, added along an axis; -inf where they are empty."""
    scale = finite(tl.max(top, axis))
    total = tl.sum((sums * tl.exp((top - tl.expand_dims(scale, axis)).to(sums.dtype))).to(tl.float64), axis)
    return tl.where(total == 0, -INFINITY, scale + tl.log(tl.where(total == 0, 1.0, total)))


@triton.jit(do_not_specialize=["t", "lowest", "M", "batch_stride", "row_stride"])
def uncover(
    addresses, pop, w, t, lowest, M, batch_stride, row_stride,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, CP: tl.constexpr, KB: tl.constexpr,
):  # fmt: skip
    """Compute w[k,t] for KB of the times k = ``lowest`` .. t-2."""
    C: tl.constexpr = Q * S
    b = tl.program_id(1).to(tl.int64)
    addresses, w, pop = addresses + b * t, w + b * (t - 1 - lowest) * C * Q, pop + b * batch_stride
    k = lowest + tl.program_id(0) * KB + tl.arange(0, KB)[None, :, None]
    d, c, r = tl.arange(0, CP)[:, None, None], tl.arange(0, CP)[None, None, :], tl.arange(0, QP)[None, None, :]
    known = (k < t - 1) & (c < C) & (d < C)
    gamma = _column(addresses, t - 1, True) + _gammas(Q, S, M) + (t - 2 - k) * C * C
    slots = tl.load(gamma + c * C + d, mask=known, other=-INFINITY)  # (e, k, d): sums run over the first axis
    pops = tl.load(pop + d * row_stride + r, mask=(d < C) & (r < Q), other=-INFINITY).to(tl.float64)
    popped = log_sum(slots[:, :, :, None] + pops[:, :, None], 0)
    pushes = tl.load(_column(addresses, k + 1, k < t - 1) + C + c * C + d, mask=known, other=-INFINITY)
    result = log_sum(pushes[:, :, :, None] + tl.permute(popped, 1, 0, 2)[:, :, None], 0)
    k, c = lowest + tl.program_id(0) * KB + tl.arange(0, KB)[:, None, None], tl.arange(0, CP)[None, :, None]
    tl.store(w + ((k - lowest) * C + c) * Q + r, result, mask=(k < t - 1) & (c < C) & (r < Q))


@triton.jit
def _row(
    addresses, w, replace, now, back, t, lowest, M, row_stride,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, LINKS: tl.constexpr, KB: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """Compute gamma[j,t] for j = t - ``back``: KB lanes share first e, then k."""
    C: tl.constexpr = Q * S
    i, lane = tl.arange(0, LINKS)[None, None, :], tl.arange(0, KB)[None, :, None]
    u = tl.arange(0, QP)[:, None, None]
    c, s, z = i // C, i % C // S, i % S
    top, sums = tl.full((KB, LINKS), -INFINITY, tl.float64), tl.zeros((KB, LINKS), TYPE)
    last = _column(addresses, t - 1, True) + _gammas(Q, S, M) + (back - 1) * C * C
    for first in range(0, tl.where(back > 0, C, 0), KB):
        e = first + lane
        real = (c < C) & (e < C)
        stay = tl.load(replace + e * row_stride + i % C, mask=real, other=-INFINITY).to(tl.float64)
        top, sums = _with_terms(top, sums, stay + tl.load(last + c * C + e, mask=real, other=-INFINITY), 0)
    for first in range(t - back, t - 1, KB):
        k = first + lane
        real = (k < t - 1) & (c < C) & (u < Q)
        gamma = _column(addresses, k, k < t - 1) + _gammas(Q, S, M) + (k - t + back) * C * C
        before = tl.load(gamma + c * C + u * S + z, mask=real, other=-INFINITY)
        popped = tl.load(w + ((k - lowest) * C + u * S + z) * Q + s, mask=real, other=-INFINITY)
        top, sums = _with_terms(top, sums, before + popped, 0)
    i = tl.arange(0, LINKS)
    untouched = tl.where(i // C == i % C, 0.0, -INFINITY)
    at = now + _gammas(Q, S, M) + back * C * C + i
    tl.store(at, tl.where(back > 0, _total(top, sums, 0), untouched), mask=i < C * C)


@triton.jit
def _prefixes(
    addresses, w, push, replace, t, lowest, push_row, replace_row,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, CP: tl.constexpr, KP: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """Return log alpha_t, (CP,)."""
    C: tl.constexpr = Q * S
    d, lane = tl.arange(0, CP)[None, None, :], tl.arange(0, KP)[None, :, None]
    u, r, y = tl.arange(0, QP)[:, None, None], d // S, d % S
    top, sums = tl.full((KP, CP), -INFINITY, tl.float64), tl.zeros((KP, CP), TYPE)
    last = _column(addresses, t - 1, True)
    for first in range(0, C, KP):
        c = first + lane
        real = (d < C) & (c < C)
        before = tl.load(last + c, mask=c < C, other=-INFINITY)
        pushed = tl.load(push + c * push_row + d, mask=real, other=-INFINITY)
        top, sums = _with_terms(top, sums, before + pushed, 0)
        stays = tl.load(replace + c * replace_row + d, mask=real, other=-INFINITY)
        top, sums = _with_terms(top, sums, before + stays, 0)
    for first in range(lowest, t - 1, KP):
        k = first + lane
        real = (k < t - 1) & (d < C) & (u < Q)
        before = tl.load(_column(addresses, k, k < t - 1) + u * S + y, mask=real, other=-INFINITY)
        popped = tl.load(w + ((k - lowest) * C + u * S + y) * Q + r, mask=real, other=-INFINITY)
        top, sums = _with_terms(top, sums, before + popped, 0)
    return _total(top, sums, 0)


@triton.jit
def _expected(
    addresses, w, push, replace, v, alpha, m, t, lowest, M, push_row, replace_row,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, CP: tl.constexpr, KP: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """Return coordinate m of E_t, (CP,): equation (5), with shares of alpha_t."""
    C: tl.constexpr = Q * S
    d, lane = tl.arange(0, CP)[None, None, :], tl.arange(0, KP)[None, :, None]
    u, r, y = tl.arange(0, QP)[:, None, None], d // S, d % S
    scale, sums = finite(alpha)[None, None, :], tl.zeros((KP, CP), tl.float64)
    last = _column(addresses, t - 1, True)
    for first in range(0, C, KP):
        c = first + lane
        real = (d < C) & (c < C)
        before = tl.load(last + c, mask=c < C, other=-INFINITY) - scale
        pushed = before + tl.load(push + c * push_row + d, mask=real, other=-INFINITY)
        stays = before + tl.load(replace + c * replace_row + d, mask=real, other=-INFINITY)
        vector = tl.load(last + _vectors(Q, S, M) + c * M + m, mask=c < C, other=0.0)
        sums += tl.sum(tl.exp(pushed.to(TYPE)).to(tl.float64) * v + tl.exp(stays.to(TYPE)).to(tl.float64) * vector, 0)
    for first in range(lowest, t - 1, KP):
        k = first + lane
        real = (k < t - 1) & (d < C) & (u < Q)
        column = _column(addresses, k, k < t - 1)
        before = tl.load(column + u * S + y, mask=real, other=-INFINITY) - scale
        popped = tl.load(w + ((k - lowest) * C + u * S + y) * Q + r, mask=real, other=-INFINITY)
        vector = tl.load(column + _vectors(Q, S, M) + (u * S + y) * M + m, mask=real, other=0.0)
        sums += tl.sum(tl.exp((before + popped).to(TYPE)).to(tl.float64) * vector, 0)
    return tl.sum(sums, 0)


@triton.jit
def _kept(logits, row_stride, to, store, C: tl.constexpr, D: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr):
    """Return how many of the logits (C, D) are NaN or +inf; if ``store``, copy them ``to`` a column."""
    c, d = tl.arange(0, CP)[:, None], tl.arange(0, DP)[None, :]
    x = tl.load(logits + c * row_stride + d, mask=(c < C) & (d < D), other=0.0).to(tl.float64)
    tl.store(to + c * D + d, x, mask=(c < C) & (d < tl.where(store, D, 0)))
    return tl.sum(tl.sum(tl.where(x < INFINITY, 0, 1), 1), 0)


@triton.jit
def _vector(
    addresses, w, push, replace, pop, value, now, reading, next_addresses, m, t, lowest, M,
    push_row, replace_row, pop_row,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, CP: tl.constexpr, KP: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """Compute coordinate m of E_t and the reading; the program of m = 0 stores what does not depend on m, too."""
    C: tl.constexpr = Q * S
    d, k = tl.arange(0, CP), tl.arange(0, KP)
    wrong = _kept(push, push_row, now + C, m == 0, C, C, CP, CP)
    wrong += _kept(replace, replace_row, now + C + C * C, m == 0, C, C, CP, CP)
    wrong += _kept(pop, pop_row, now + C + 2 * C * C, m == 0, C, Q, CP, QP)
    alpha = _prefixes(addresses, w, push, replace, t, lowest, push_row, replace_row, Q, S, QP, CP, KP, TYPE)
    alpha = tl.where(wrong > 0, float("nan"), alpha)
    if m == 0:
        tl.store(now + d, alpha, mask=d < C)
        for first in range(0, t, KP):
            mask = first + k < t
            tl.store(next_addresses + first + k, tl.load(addresses + first + k, mask=mask), mask=mask)
        tl.store(next_addresses + t, now.to(tl.int64))
    if m < M:
        v = tl.load(value + m).to(tl.float64)
        tl.store(now + _vectors(Q, S, M) - M + m, v)
        E = _expected(
            addresses, w, push, replace, v, alpha, m, t, lowest, M, push_row, replace_row, Q, S, QP, CP, KP, TYPE
        )
        tl.store(now + _vectors(Q, S, M) + d * M + m, E, mask=d < C)
        total = log_sum(alpha, 0)
        beyond = (tl.abs(total) > LARGEST) & (total > -INFINITY)
        share = tl.where(beyond, float("nan"), tl.exp(alpha - finite(total)))
        tl.store(reading + d * M + m, (share * E).to(reading.dtype.element_ty), mask=d < C)


@triton.jit(
    do_not_specialize=[
        *("t", "lowest", "rows", "size", "M", "push_batch", "push_row", "replace_batch", "replace_row"),
        *("pop_batch", "pop_row"),
    ]
)
def advance(
    addresses, w, push, replace, pop, value, now, reading, next_addresses, t, lowest, rows, size, M,
    push_batch, push_row, replace_batch, replace_row, pop_batch, pop_row,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, CP: tl.constexpr, LINKS: tl.constexpr, KB: tl.constexpr,
    KP: tl.constexpr, DOUBLE: tl.constexpr,
):  # fmt: skip
    """Compute the column of time t, the reading and the addresses of all columns: ``rows`` of gamma, then the rest."""
    TYPE: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    C: tl.constexpr = Q * S
    part, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    addresses, w, now = addresses + b * t, w + b * (t - 1 - lowest) * C * Q, now + b * size
    push, replace, pop = push + b * push_batch, replace + b * replace_batch, pop + b * pop_batch
    if part < rows:
        _row(addresses, w, replace, now, part, t, lowest, M, replace_row, Q, S, QP, LINKS, KB, TYPE)
    else:
        _vector(
            addresses, w, push, replace, pop, value + b * M, now, reading + b * C * M,
            next_addresses + b * (t + 1), part - rows, t, lowest, M, push_row, replace_row, pop_row,
            Q, S, QP, CP, KP, TYPE,
        )  # fmt: skip

"""Nondeterministic stack attention in Triton, forward. Recurrences and adjoints are in DERIVATION.md.

Legend: T padded length, n <= T steps of a sequence; Q states, S symbols, C = Q S configurations, (q, x) has index
q S + x; M columns of the readings; t the step, j, k earlier times; the adjoint of x is named x_. QP >= Q and CP >= C
are powers of two; tiles of K times by J times, of K times by MB columns.

One program for each sequence. (1) is a triangular system; its inverse G does not depend on t, but grows with it:

    G[t][d][c][j] = sum_{k, u} G[k][(u, z)][c][j] W_t[k][u, z, s] + sum_e G[t-1][e][c][j] rho_t[e | d],   d = (s, z)
    R_t[j][c, r]  = sum_d G[t-1][d][c][j] Pop_t[d, r]            R_t_[k][d, r] = sum_{c, j} G[k][d][c][j] S_t[j][c, r]

with S_t the adjoint of R_t from (2). A step thus consists of a few matrix-vector products without sequential
dependencies: S times the arithmetic of the triangular solve, but no chain of n dependent operations.
G[k][d][c][j] is the probability that a slot that shows d at time k showed c at time j, given the input so far.

Tables are double, time last: R, W and their adjoints [t][r][c][j], G [t][d][c][j], pi [c][d][t], rho [t][c][d],
a [t][c], E [c][t][M]. Barriers separate steps and the phases of a step, because threads read what others wrote.
"""

import triton
import triton.language as tl

INFINITY = tl.constexpr(float("inf"))
SMALLEST_SHARE = tl.constexpr(1e-290)  # as in sequence.h
LARGEST_REGROWTH = tl.constexpr(600.0)
LARGEST_GROWTH = tl.constexpr(1e6)


@triton.jit
def parts_of_tables(tables, T, M, Q: tl.constexpr, S: tl.constexpr):
    """Return pointers to a sequence's a, from_pop / alpha, pi, rho, E, R, W and G."""
    C: tl.constexpr = Q * S
    times = T + 1
    inverse = tables + times * C
    pi = inverse + times * C
    rho = pi + times * C * C
    E = rho + times * C * C
    R = E + times * C * M
    W = R + times * times * Q * C
    return tables, inverse, pi, rho, E, R, W, W + times * times * Q * C


@triton.jit
def _log(x):
    """Return log x; -inf for zero."""
    return tl.where(x > 0, tl.log(tl.where(x > 0, x, 1.0)), -INFINITY)


@triton.jit
def _finite(scale):
    """Return the scale, with -inf (no transitions) replaced by 0, since -inf - -inf is NaN."""
    return tl.where(scale == -INFINITY, 0.0, scale)


@triton.jit
def _largest(x):
    return tl.max(tl.max(x, 1), 0)


@triton.jit
def _least(x):
    return tl.min(tl.min(x, 1), 0)


@triton.jit
def _fastest_growth(push, repl, pop):
    """Return the largest log of a configuration's total outgoing weight: largest_growth() of sequence.h."""
    top = tl.maximum(tl.maximum(tl.max(push, 1), tl.max(repl, 1)), tl.max(pop, 1))
    shift = _finite(top)[:, None]
    total = tl.sum(tl.exp(push - shift) + tl.exp(repl - shift), 1) + tl.sum(tl.exp(pop - shift), 1)
    return tl.max(tl.where(top == -INFINITY, -INFINITY, top + _log(total)), 0)


@triton.jit
def sums_of_configurations(sums, Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, CP: tl.constexpr):
    """Return sum_u sums[(u, y)][r] for each configuration (r, y)."""
    c, u = tl.arange(0, CP)[:, None], tl.arange(0, QP)[None, :]
    x = tl.load(sums + (u * S + c % S) * Q + c // S, mask=(u < Q) & (c < Q * S), other=0.0)
    return tl.sum(x, 1)


@triton.jit
def _popped_slots(
    R_row, G_row, pops, t, low, times,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    """Compute (1); return the smallest value written."""
    C: tl.constexpr = Q * S
    r = tl.arange(0, QP)[:, None]
    least = tl.full((QP, J), INFINITY, tl.float64)
    for c in range(C):
        for first in range(low, t, J):
            j = first + tl.arange(0, J)[None, :]
            x = tl.zeros((QP, J), tl.float64)
            for d in range(C):
                g = tl.load(G_row + (d * C + c) * times + j, mask=j < t, other=0.0)
                x += tl.load(pops + d * Q + r, mask=r < Q, other=0.0) * g
            real = (r < Q) & (j < t)
            tl.store(R_row + (r * C + c) * times + j, x, mask=real)
            least = tl.where(real, tl.minimum(least, x), least)
    return _least(least)


@triton.jit
def _uncovered(
    D_row, R_row, pi, popped, t, low, times,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    """Compute (2) and, in ``popped``, its sums over k, [c][r]."""
    C: tl.constexpr = Q * S
    r = tl.arange(0, QP)[:, None]
    for c in range(C):
        sums = tl.zeros((QP, J), tl.float64)
        for first in range(low - 1, t - 1, J):
            k = first + tl.arange(0, J)[None, :]
            real = (r < Q) & (k < t - 1)
            x = tl.zeros((QP, J), tl.float64)
            for d in range(C):
                share = tl.load(pi + (c * C + d) * times + k + 1, mask=k < t - 1, other=0.0)
                x += share * tl.load(R_row + (r * C + d) * times + k + 1, mask=real, other=0.0)
            tl.store(D_row + (r * C + c) * times + k, x, mask=real)
            sums += x
        tl.store(popped + c * Q + tl.arange(0, QP), tl.sum(sums, 1), mask=tl.arange(0, QP) < Q)


@triton.jit
def _divide_uncovered(
    W_row, D_row, inverse_row, t, low, times,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    """Compute W_t from D_t; return the smallest value of both. At time 0 there is only one configuration, the first."""
    C: tl.constexpr = Q * S
    r = tl.arange(0, QP)[:, None]
    least = tl.full((QP, J), INFINITY, tl.float64)
    for c in range(C):
        factor = tl.load(inverse_row + r * S + c % S, mask=r < Q, other=0.0)
        for first in range(low - 1, t - 1, J):
            k = first + tl.arange(0, J)[None, :]
            real = (r < Q) & (k < t - 1)
            at = (r * C + c) * times + k
            D = tl.load(D_row + at, mask=real, other=0.0)
            x = factor * D
            tl.store(W_row + at, x, mask=real)
            least = tl.where(real & (k >= tl.where(c > 0, 1, 0)), tl.minimum(least, tl.minimum(x, D)), least)
    return _least(least)


@triton.jit
def _extend_inverse(
    G, W_row, rho_row, t, low, times,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, K: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    """Compute row t of G from column ``low`` on; return its smallest value off the diagonal."""
    C: tl.constexpr = Q * S
    s, s3 = tl.arange(0, QP)[:, None], tl.arange(0, QP)[:, None, None]
    least = tl.full((QP, J), INFINITY, tl.float64)
    for c in range(C):
        for z in range(S):
            for first in range(low, t + 1, J):
                j, j3 = first + tl.arange(0, J)[None, :], first + tl.arange(0, J)[None, None, :]
                sums = tl.zeros((QP, K, J), tl.float64)
                for start in range(first, t - 1, K):
                    k = start + tl.arange(0, K)[None, :, None]
                    for u in range(Q):
                        d = u * S + z
                        real = (k < t - 1) & (j3 <= k)
                        g = tl.load(G + ((k * C + d) * C + c) * times + j3, mask=real, other=0.0)
                        real = (s3 < Q) & (k < t - 1)
                        sums += g * tl.load(W_row + (s3 * C + d) * times + k, mask=real, other=0.0)
                x = tl.sum(sums, 1)
                for e in range(C):
                    g = tl.load(G + (((t - 1) * C + e) * C + c) * times + j, mask=j < t, other=0.0)
                    x += g * tl.load(rho_row + e * C + s * S + z, mask=s < Q, other=0.0)
                x = tl.where(j == t, tl.where(s * S + z == c, 1.0, 0.0), x)
                real = (s < Q) & (j <= t)
                tl.store(G + ((t * C + s * S + z) * C + c) * times + j, x, mask=real)
                least = tl.where(real & (j < t), tl.minimum(least, x), least)
    return _least(least)


@triton.jit
def _top_vectors(
    E, W_row, pi, rho_row, share_row, value, reading, t, low, times, M,
    Q: tl.constexpr, S: tl.constexpr, CP: tl.constexpr, K: tl.constexpr, MB: tl.constexpr,
):  # fmt: skip
    """Compute (5) and the reading."""
    C: tl.constexpr = Q * S
    d = tl.arange(0, CP)[:, None]
    for c in range(C):
        pushed = tl.sum(tl.load(pi + (d * C + c) * times + t, mask=d < C, other=0.0), 0)
        replaced = tl.load(rho_row + d * C + c, mask=d < C, other=0.0)
        for first in range(0, M, MB):
            m = first + tl.arange(0, MB)[None, :]
            sums = tl.zeros((K, MB), tl.float64)
            for u in range(Q):
                e = u * S + c % S
                for start in range(low - 1, t - 1, K):
                    k = start + tl.arange(0, K)[:, None]
                    w = tl.load(W_row + (c // S * C + e) * times + k, mask=k < t - 1, other=0.0)
                    sums += w * tl.load(E + (e * times + k) * M + m, mask=(k < t - 1) & (m < M), other=0.0)
            before = tl.load(E + (d * times + t - 1) * M + m, mask=(d < C) & (m < M), other=0.0)
            x = tl.sum(sums, 0) + tl.sum(replaced * before, 0)
            m = first + tl.arange(0, MB)
            x += pushed * tl.load(value + m, mask=m < M, other=0.0).to(tl.float64)
            tl.store(E + (c * times + t) * M + m, x, mask=m < M)
            tl.store(reading + c * M + m, tl.load(share_row + c) * x, mask=m < M)


@triton.jit
def _step_weights(
    push, repl, pop, pops, share, t, Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, CP: tl.constexpr
):
    """Compute share[c] exp(logit - scale) of this step's transitions, as StepWeights of step_weights.h.

    Weights of pops are written to ``pops``. Return the weights of pushes and of replacements, [c][d], their scale, the
    scale of pops, and the fastest growth.
    """
    C: tl.constexpr = Q * S
    i = tl.arange(0, CP)
    c, d, r = i[:, None], i[None, :], tl.arange(0, QP)[None, :]
    at, real = ((t - 1) * C + c) * C + d, (c < C) & (d < C)
    push_t = tl.load(push + at, mask=real, other=-INFINITY).to(tl.float64)
    repl_t = tl.load(repl + at, mask=real, other=-INFINITY).to(tl.float64)
    poppable = (c < tl.where(t > 1, C, 0)) & (r < Q)  # the bottom is never popped
    pop_t = tl.load(pop + ((t - 1) * C + c) * Q + r, mask=poppable, other=-INFINITY).to(tl.float64)
    fastest = _fastest_growth(push_t, repl_t, pop_t)
    log_share = _log(share)[:, None]
    push_t, repl_t, pop_t = push_t + log_share, repl_t + log_share, pop_t + log_share
    stay_scale, pop_scale = tl.maximum(_largest(push_t), _largest(repl_t)), _largest(pop_t)
    tl.store(pops + c * Q + r, tl.exp(pop_t - _finite(pop_scale)), mask=(c < C) & (r < Q))
    shift = _finite(stay_scale)
    return tl.exp(push_t - shift), tl.exp(repl_t - shift), stay_scale, pop_scale, fastest


@triton.jit
def _normalise(
    push_t, repl_t, stay_scale, pop_scale, share, popped, a, inverse, pi, rho, t, times,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Compute (3), and (4) for pushes and replacements; return log of the sum of alpha_t, and the least share."""
    C: tl.constexpr = Q * S
    i = tl.arange(0, CP)
    c, d = i[:, None], i[None, :]
    stay, back = tl.sum(push_t, 0) + tl.sum(repl_t, 0), sums_of_configurations(popped, Q, S, QP, CP)
    stays, backs = stay_scale + _log(tl.sum(stay, 0)), pop_scale + _log(tl.sum(back, 0))
    highest = _finite(tl.maximum(stays, backs))
    from_stay = tl.exp(tl.where(stays == -INFINITY, -INFINITY, stay_scale - highest))
    from_pop = tl.exp(tl.where(backs == -INFINITY, -INFINITY, pop_scale - highest))
    alpha = from_stay * stay + from_pop * back
    total = tl.sum(alpha, 0)
    kept, pops = alpha > SMALLEST_SHARE * total, back >= SMALLEST_SHARE
    shown = tl.where(kept, alpha, 1.0)
    factor = tl.where(kept, from_stay / shown, 0.0)[None, :]
    tl.store(a + t * C + i, tl.where(kept, alpha / tl.where(total > 0, total, 1.0), 0.0), mask=i < C)
    tl.store(inverse + t * C + i, tl.where(kept & pops, from_pop / shown, 0.0), mask=i < C)
    tl.store(pi + (c * C + d) * times + t, push_t * factor, mask=(c < C) & (d < C))
    tl.store(rho + (t * C + c) * C + d, repl_t * factor, mask=(c < C) & (d < C))
    reached = (c < C) & (d < C) & (share[:, None] > 0)
    least = _least(tl.where(reached, tl.minimum(push_t, repl_t) * factor, INFINITY))
    small = (alpha <= SMALLEST_SHARE * total) | ((back > 0) & (back < SMALLEST_SHARE))
    lost = tl.min(tl.where((i < C) & small, 0.0, INFINITY), 0)
    return highest + _log(total), tl.minimum(least, lost)


@triton.jit(do_not_specialize=["T", "M", "window", "size"])
def forward(
    push, repl, pop, values, bottom, lengths, readings, log_weight, failed, tables, room, T, M, window, size,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, CP: tl.constexpr,
    K: tl.constexpr, J: tl.constexpr, MB: tl.constexpr,
):  # fmt: skip
    """Compute readings and log-weights; set ``failed`` for possible underflow and for sequences without a run."""
    C: tl.constexpr = Q * S
    b = tl.program_id(0).to(tl.int64)
    times = T + 1
    push, repl, pop = push + b * T * C * C, repl + b * T * C * C, pop + b * T * C * Q
    values, readings, log_weight = values + b * T * M, readings + b * T * C * M, log_weight + b * T
    a, inverse, pi, rho, E, R, W, G = parts_of_tables(tables + b * size, T, M, Q, S)
    pops = room + b * C * Q * (2 + times)
    popped = pops + C * Q
    D_row = popped + C * Q
    n = tl.minimum(tl.maximum(tl.load(lengths + b), 0), T).to(tl.int32)  # no length leads out of the tensors
    i = tl.arange(0, CP)
    tl.store(a + i, tl.where(i == 0, 1.0, 0.0), mask=i < C)
    for first in range(0, C * M, MB):
        m = first + tl.arange(0, MB)
        at_bottom = tl.load(bottom + m, mask=m < M, other=0.0).to(tl.float64)  # in the first configuration alone
        tl.store(E + m // M * times * M + m % M, at_bottom, mask=m < C * M)
    tl.debug_barrier()

    lost, log_total = tl.full((), -INFINITY, tl.float64), tl.full((), 0.0, tl.float64)
    last, bad, t = n, n * 0, n * 0 + 1
    while t <= last:
        low = tl.maximum(t - window, 1)
        share = tl.load(a + (t - 1) * C + i, mask=i < C, other=0.0)
        push_t, repl_t, stay_scale, pop_scale, fastest = _step_weights(push, repl, pop, pops, share, t, Q, S, QP, CP)
        tl.debug_barrier()
        R_row, W_row, G_row = R + t * Q * C * times, W + t * Q * C * times, G + (t - 1) * C * C * times
        least_pop = _popped_slots(R_row, G_row, pops, t, low, times, Q, S, QP, J)
        tl.debug_barrier()
        _uncovered(D_row, R_row, pi, popped, t, low, times, Q, S, QP, J)
        tl.debug_barrier()
        growth, least = _normalise(
            push_t, repl_t, stay_scale, pop_scale, share, popped, a, inverse, pi, rho, t, times, Q, S, QP, CP
        )
        tl.debug_barrier()
        least_pop = tl.minimum(least_pop, _divide_uncovered(W_row, D_row, inverse + t * C, t, low, times, Q, S, QP, J))
        least = tl.minimum(least, tl.where(pop_scale == -INFINITY, INFINITY, least_pop))
        tl.debug_barrier()
        if t < n:
            nearest = tl.maximum(t + 1 - window, 1)
            least = tl.minimum(least, _extend_inverse(G, W_row, rho + t * C * C, t, nearest, times, Q, S, QP, K, J))
        value, reading = values + (t - 1) * M, readings + (t - 1) * C * M
        _top_vectors(E, W_row, pi, rho + t * C * C, a + t * C, value, reading, t, low, times, M, Q, S, CP, K, MB)

        # lost_after() of sequence.h
        log_total += growth
        tl.store(log_weight + t - 1, log_total)
        lost = tl.where(least < SMALLEST_SHARE, tl.maximum(lost, 0.0), lost)
        lost = tl.where(lost > -INFINITY, lost + fastest - _finite(growth), lost)
        trusted = (tl.abs(growth) <= LARGEST_GROWTH) & (lost < LARGEST_REGROWTH)
        bad = tl.where(trusted, bad, 1)
        last = tl.where(trusted, last, 0)
        t += 1
        tl.debug_barrier()
    tl.store(failed + b, bad)

"""True weights of prefixes, top vectors and readings from the tables in tiles.

Legend in tiles.py. `corrections` computes, block by block and for one tile of columns, of which the first is b,

    x_t[d] = Σ_c π_t[c→d] b_{t-1}[c] (1, v_t) + ρ_t[c→d] x_{t-1}[c] + Σ_{k,u} w^[k,t][(u,y),r] x_k[(u,y)]     d = (r,y)

so that α = p b and E = x / b. x is (B, tiles of columns, T+1, C, MB) in doubles.
"""

import triton
import triton.language as tl

from structattn.operators.nondeterministic_stack.gpu.prepare_gpu_kernel import finite, log_sum, state_first
from structattn.operators.nondeterministic_stack.gpu.tiles_gpu_kernel import tile_at

INFINITY = tl.constexpr(float("inf"))


@triton.jit
def _item(vector, column, M, inside):
    """Return (1, v) for the columns of a tile: b's column and those of the vectors."""
    x = tl.load(vector + column, mask=inside & (column >= 0) & (column < M), other=0.0).to(tl.float64)
    return tl.where(column < 0, 1.0, x)


@triton.jit
def _earlier_block(w, x, K, I, z, Q: tl.constexpr, S: tl.constexpr, NP: tl.constexpr, MB: tl.constexpr):
    """Return Σ w^[K,I] x[K] of one symbol, (NP, MB)."""
    i, k, m = tl.arange(0, NP)[None, :], tl.arange(0, NP)[:, None], tl.arange(0, MB)[None, :]
    pop = tl.load(w + (tile_at(K, I) * S + z) * NP * NP + i * NP + k).to(tl.float64)  # transposed
    at = (K * (NP // Q) + k // Q) * Q * S + z * Q + k % Q
    earlier = tl.load(x + at * MB + m, mask=k < NP // Q * Q, other=0.0)
    return tl.dot(pop, earlier, input_precision="ieee", out_dtype=tl.float64)


@triton.jit(do_not_specialize=["I", "near", "tiles", "T"])
def earlier_blocks(
    w, lengths, x, sums, I, near, tiles, T,
    Q: tl.constexpr, S: tl.constexpr, NP: tl.constexpr, MB: tl.constexpr,
):  # fmt: skip
    """Sum what block I takes from the earlier ones, for one symbol: all but the first and the one before I."""
    z, part, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    if I * (NP // Q) > tl.load(lengths + b):
        return
    own = b * tl.num_programs(1) + part
    x, w = x + own * (T + 1) * Q * S * MB, w + b * tiles * S * NP * NP
    total = tl.zeros((NP, MB), tl.float64)
    for K in range(tl.maximum(1, I - near + 1), I - 1):
        total += _earlier_block(w, x, K, I, z, Q, S, NP, MB)
    at = tl.arange(0, NP)[:, None] * MB + tl.arange(0, MB)[None, :]
    tl.store(sums + (own * S + z) * NP * MB + at, total)


@triton.jit(do_not_specialize=["I", "near", "tiles", "T", "M"])
def corrections(
    w, pi, rho, values, bottom, lengths, x, sums, I, near, tiles, T, M,
    Q: tl.constexpr, S: tl.constexpr, CP: tl.constexpr, NP: tl.constexpr, MB: tl.constexpr,
):  # fmt: skip
    """Compute x for the times of block I: products of matrices for the nearest blocks, then step by step within."""
    C: tl.constexpr = Q * S
    NB: tl.constexpr = NP // Q
    SIZE: tl.constexpr = S * NP * NP
    part, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n = tl.load(lengths + b)
    own = b * tl.num_programs(0) + part
    x, sums, w = x + own * (T + 1) * C * MB, sums + own * S * NP * MB, w + b * tiles * SIZE
    values, pi, rho = values + b * T * M, pi + b * T * C * C, rho + b * T * C * C
    i, k, m = tl.arange(0, NP)[None, :], tl.arange(0, NP)[:, None], tl.arange(0, MB)[None, :]
    c, start = tl.arange(0, CP)[:, None], tl.arange(0, CP)[None, :]
    column = tl.where(m > 0, part * (MB - 1) + m - 1, -1)
    known, moves, y, here = c < C, (c < C) & (start < C), c // Q, c * MB + m

    nearest = tl.where(I < near, 0, tl.maximum(I - 1, I - near + 1))
    summed = tl.where((I > 2) & (near > 2), NP, 0)  # rows that `earlier_blocks` has left
    for z in range(tl.where(I * NB <= n, S, 0)):
        total = tl.load(sums + (z * NP + k) * MB + m, mask=k < summed, other=0.0)
        for K in range(nearest, I, tl.maximum(I - 1, 1)):
            total += _earlier_block(w, x, K, I, z, Q, S, NP, MB)
        tl.store(sums + (z * NP + k) * MB + m, total)
    tile, x_block = w + tile_at(I, I) * SIZE, x + I * NB * C * MB
    pops = y * NP * NP + i * NP + c % Q  # of a time of the block's tile, (CP, NP)
    if I == 0:
        before = tl.where(c == 0, _item(bottom, column, M, known), 0.0)  # x at the time before
        tl.store(x + here, before, mask=known)
    else:
        before = tl.load(x_block - C * MB + here, mask=c < tl.where(I * NB <= n, C, 0), other=0.0)
    first, end = tl.where(I == 0, 1, 0), tl.minimum(NB, n - I * NB + 1)
    count = tl.where(first < end, C, 0)
    step = (I * NB + first - 1) * C * C + start * C + c
    stay = tl.load(rho + step, mask=moves & (c < count), other=0.0)
    push = tl.load(pi + step, mask=moves & (c < count), other=0.0)
    popped = tl.load(tile + pops + first * Q, mask=known & (i < first * Q), other=0.0)
    for local in range(first, end):
        now = tl.load(sums + (y * NP + local * Q + c % Q) * MB + m, mask=known, other=0.0)
        item = _item(values + (I * NB + local - 1) * M, column, M, known)
        tl.debug_barrier()  # other threads read the times that were written
        now += tl.dot(stay.to(tl.float64), before, input_precision="ieee", out_dtype=tl.float64)
        weights = tl.sum(tl.where(m == 0, before, 0.0), 1)[:, None]
        now += tl.dot(push.to(tl.float64), weights * item, input_precision="ieee", out_dtype=tl.float64)
        last = popped.to(tl.float64)
        count, step = tl.where(local + 1 < end, C, 0), step + C * C
        stay = tl.load(rho + step, mask=moves & (c < count), other=0.0)  # of the next time
        push = tl.load(pi + step, mask=moves & (c < count), other=0.0)
        popped = tl.load(tile + pops + (local + 1) * Q, mask=(c < count) & (i < (local + 1) * Q), other=0.0)
        for symbol in tl.static_range(S):
            slot = (k // Q * C + symbol * Q + k % Q) * MB + m
            mine = tl.load(x_block + slot, mask=k < local * Q, other=0.0)
            left = tl.where(y == symbol, last, 0.0)
            now += tl.dot(left, mine, input_precision="ieee", out_dtype=tl.float64)
        tl.store(x_block + local * C * MB + here, now, mask=known)
        before = now


@triton.jit(do_not_specialize=["T", "M", "parts"])
def readings(
    push, replace, pop, lengths, log_p, log_g, x, out, log_weight, a, E, log_alpha, pi, rho, factor, b_, ratio,
    growth, reach, grown, T, M, parts,
    Q: tl.constexpr, S: tl.constexpr, CP: tl.constexpr, MB: tl.constexpr, SMALLEST: tl.constexpr,
):  # fmt: skip
    """Compute, for one time, readings and log-weight, and everything but the tables conditioned on the prefix.

    Also b and the ratio of the old scale of pops to the new; and for `regrowth` the growth of the log-weight, the
    scale of what the tables lose relative to all runs, max(g_t, max_c p_t[c]) / Σ α_t, and the step's outgoing weights
    relative to the growth, (CP, 2 CP): stays to d, then pops to r.
    """
    C: tl.constexpr = Q * S
    t, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n, row = tl.load(lengths + b), b * (T + 1) + t
    i = tl.arange(0, CP)
    c, d = i[:, None], i[None, :]
    first = x + b * parts * (T + 1) * C * MB
    within, configurations = t <= n, tl.where(t <= n, C, 0)
    b_t = tl.load(first + (t * C + i) * MB, mask=i < configurations, other=0.0)
    alpha = tl.load(log_p + row * C + i, mask=i < configurations, other=-INFINITY)
    alpha = tl.where(b_t == 0, -INFINITY, alpha + tl.log(tl.where(b_t == 0, 1.0, b_t)))
    total = log_sum(alpha, 0)
    shares = tl.exp(alpha - finite(total))
    tl.store(log_alpha + row * C + i, alpha, mask=i < C)
    tl.store(a + row * C + i, shares, mask=i < C)
    tl.store(b_ + row * C + i, b_t, mask=i < C)
    inverse = tl.where(b_t == 0, 0.0, 1.0 / tl.where(b_t == 0, 1.0, b_t))
    for part in range(parts):
        m = tl.arange(0, MB)[None, :]
        column = part * (MB - 1) + m - 1
        shown = (c < C) & (m > 0) & (column < M)
        v = tl.load(first + ((part * (T + 1) + t) * C + c) * MB + m, mask=shown & (c < configurations), other=0.0)
        v = tl.where(inverse[:, None] == 0, 0.0, v * inverse[:, None])
        tl.store(E + (row * C + c) * M + column, v, mask=shown)
        if t > 0:
            at = ((b * T + t - 1) * C + state_first(c, Q, S)) * M + column
            v = tl.where(shares[:, None] == 0, 0.0, v * shares[:, None])
            tl.store(out + at, v.to(out.dtype.element_ty), mask=shown)
    if t == 0:
        tl.store(ratio + row, tl.zeros((), tl.float64))
        tl.store(factor + row * C + i, tl.zeros((CP,), factor.dtype.element_ty), mask=i < C)
    else:
        tl.store(log_weight + b * T + t - 1, tl.where(within, total, 0.0).to(log_weight.dtype.element_ty))
        # The weights of the time before, again: nothing else of it is needed.
        b_last = tl.load(first + ((t - 1) * C + i) * MB, mask=i < configurations, other=0.0)
        last = tl.load(log_p + (row - 1) * C + i, mask=i < configurations, other=-INFINITY)
        last = tl.where(b_last == 0, -INFINITY, last + tl.log(tl.where(b_last == 0, 1.0, b_last)))
        grows = total - log_sum(last, 0)
        old = tl.load(log_p + row * C + i, mask=i < configurations, other=-INFINITY)
        largest = tl.maximum(tl.max(old, 0), tl.load(log_g + row))
        tl.store(reach + row, tl.exp(largest - finite(total)))
        real = (c < configurations) & (d < C)
        step, from_c, to_d = b * T + t - 1, state_first(c, Q, S), state_first(d, Q, S)
        alive = real & (last > -INFINITY)[:, None] & (alpha > -INFINITY)[None, :]
        shift = finite(last)[:, None] - finite(alpha)[None, :]
        x_ = tl.load(push + step * C * C + from_c * C + to_d, mask=real, other=-INFINITY).to(tl.float64)
        y_ = tl.load(replace + step * C * C + from_c * C + to_d, mask=real, other=-INFINITY).to(tl.float64)
        at = step * C * C + c * C + d
        tl.store(pi + at, tl.where(alive, tl.exp(x_ + shift), 0.0).to(pi.dtype.element_ty), mask=(c < C) & (d < C))
        tl.store(rho + at, tl.where(alive, tl.exp(y_ + shift), 0.0).to(rho.dtype.element_ty), mask=(c < C) & (d < C))
        poppable = (c < tl.where(t > 1, configurations, 0)) & (d < Q)
        z_ = tl.load(pop + step * C * Q + from_c * Q + d, mask=(c < configurations) & (d < Q), other=-INFINITY)
        wrong = tl.where((x_ < INFINITY) & (y_ < INFINITY) & (z_ < INFINITY), 0, 1)  # NaN or +inf
        tl.store(growth + b * T + t - 1, tl.where(tl.sum(tl.sum(wrong, 1), 0) == 0, grows, float("nan")))
        z_ = tl.where(poppable, z_.to(tl.float64), -INFINITY)
        g = finite(tl.max(tl.max(z_ + last[:, None], 1), 0))
        tl.store(ratio + row, tl.where(within, tl.exp(tl.load(log_g + row) - g), 0.0))
        # A smaller share is lost, as `condition` bounds it; its factor may overflow.
        f = tl.where(shares >= SMALLEST, tl.exp(g - finite(alpha)), 0.0)
        tl.store(factor + row * C + i, f.to(factor.dtype.element_ty), mask=i < C)
        both = tl.where(real, tl.exp(x_ - grows) + tl.exp(y_ - grows), 0.0)
        at = step * CP * 2 * CP + c * 2 * CP
        tl.store(grown + at + d, both)
        tl.store(grown + at + CP + d, tl.where(poppable, tl.exp(z_ - grows), 0.0))

"""Adjoints of the cells in Triton, on anti-diagonals of tiles from long spans to short: (b) of adjoints_reference.py.

For the tiles (J,I) of an anti-diagonal, `products` sums over tiles that are complete, on tensor cores; `rows` solves
the tile row by row. Only tiles of spans that are longer by one block need the anti-diagonal before: all others are
summed beside it.
"""

import triton
import triton.language as tl


@triton.jit
def tile(J, I, S: tl.constexpr, NP: tl.constexpr):
    """Return the offset of tile (J,I) in a sequence's table."""
    return (I * (I + 1) // 2 + J) * S * NP * NP


@triton.jit(do_not_specialize=["d", "T", "blocks", "diagonals", "M"])
def products(
    R, W, R_, E, y, lengths, sums_W, sums_R, d, T, blocks, diagonals, M,
    Q: tl.constexpr, S: tl.constexpr, NP: tl.constexpr, MB: tl.constexpr, PRECISION: tl.constexpr,
    NEAREST: tl.constexpr,
):  # fmt: skip
    """Write (1, E_J) y_Iᵀ + Σ_{K>I+1} R̄[J,K] R[I,K]ᵀ and Σ_{K<J-1} W[K,J]ᵀ R̄[K,I] for one symbol.

    If ``NEAREST``, add those for K = I + 1 and K = J - 1 instead.
    """
    NB: tl.constexpr = NP // Q
    J, z, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    I = J + d
    last = tl.load(lengths + b) // NB
    if I > last:
        return
    dtype = R.dtype.element_ty
    i, k = tl.arange(0, NP)[:, None], tl.arange(0, NP)[None, :]
    table = b * (blocks * (blocks + 1) // 2) * S * NP * NP + z * NP * NP + i * NP + k
    R, W, R_ = R + table, W + table, R_ + table
    own = ((b * blocks + J) * S + z) * NP * NP + i * NP + k
    sums_W, sums_R = sums_W + own, sums_R + own
    if NEAREST:
        x = tl.load(sums_W)
        first, end = I + 1, tl.minimum(I + 2, last + 1)
    else:
        E += b * (T + 1) * (Q * S) * M
        y += b * (T + 1) * (Q * S) * (1 + M)
        x = _expected(E, y, J, I, z, T, M, dtype, Q, S, NP, MB, PRECISION)
        first, end = I + 2, tl.minimum(last + 1, J + diagonals)
    for K in range(first, end):
        adjoint, to = tl.load(R_ + tile(J, K, S, NP)), tl.load(R + tile(I, K, S, NP))
        x += tl.dot(adjoint, tl.trans(to), input_precision=PRECISION, out_dtype=dtype)
    tl.store(sums_W, x)

    x = tl.zeros((NP, NP), dtype)
    first, end = tl.maximum(I - diagonals + 1, 0), J - 1
    if NEAREST:
        x = tl.load(sums_R)
        first, end = tl.maximum(J - 1, 0), J
    for K in range(first, end):
        w, adjoint = tl.load(W + tile(K, J, S, NP)), tl.load(R_ + tile(K, I, S, NP))
        x += tl.dot(tl.trans(w), adjoint, input_precision=PRECISION, out_dtype=dtype)
    tl.store(sums_R, x)


@triton.jit
def _expected(
    E, y, J, I, z, T, M, dtype: tl.constexpr,
    Q: tl.constexpr, S: tl.constexpr, NP: tl.constexpr, MB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return (1, E_J) y_Iᵀ of one symbol."""
    C: tl.constexpr = Q * S
    NB: tl.constexpr = NP // Q
    i, column = tl.arange(0, NP)[:, None], tl.arange(0, MB)[None, :]
    j, t, c = J * NB + i // Q, I * NB + i // Q, z * Q + i % Q
    x = tl.zeros((NP, NP), dtype)
    for first in range(0, 1 + M, MB):
        m = first + column
        real = (i < NB * Q) & (m < 1 + M)
        e = tl.load(E + (j * C + c) * M + m - 1, mask=real & (m > 0) & (j <= T), other=0.0)
        e = tl.where(real & (m == 0), 1.0, e).to(dtype)
        later = tl.load(y + (t * C + c) * (1 + M) + m, mask=real & (t <= T), other=0.0).to(dtype)
        x += tl.dot(e, tl.trans(later), input_precision=PRECISION, out_dtype=dtype)
    return x


@triton.jit(do_not_specialize=["d", "T", "blocks", "diagonals", "window"])
def rows(
    slots, W, R_, W_, push, replace, factor, lengths, sums_W, sums_R, d, T, blocks, diagonals, window,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, SP: tl.constexpr, NP: tl.constexpr, KB: tl.constexpr,
):  # fmt: skip
    """Solve the tile for rising j; its first row continues the last one of tile (J-1,I).

    One warp, as in `solve`. ``slots`` (B, blocks, S, NP, NP) is R[I,I] transposed, so that no sum runs over threads.
    """
    C: tl.constexpr = Q * S
    NB: tl.constexpr = NP // Q
    J, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    I = J + d
    n = tl.load(lengths + b)
    if I * NB > n:
        return
    dtype = W.dtype.element_ty
    table = b * (blocks * (blocks + 1) // 2) * S * NP * NP
    slots, within = slots + (b * blocks + I) * S * NP * NP, W + table + tile(J, J, S, NP)
    above_R, above_W = R_ + table + tile(J - 1, I, S, NP), W_ + table + tile(J - 1, I, S, NP)
    R_, W_ = R_ + table + tile(J, I, S, NP), W_ + table + tile(J, I, S, NP)
    sums_W, sums_R = sums_W + (b * blocks + J) * S * NP * NP, sums_R + (b * blocks + J) * S * NP * NP
    push, replace = push + b * T * C * C, replace + b * T * C * C

    s, z, i = tl.arange(0, QP)[:, None, None], tl.arange(0, SP)[None, :, None], tl.arange(0, NP)[None, None, :]
    exists, t = (s < Q) & (z < S), I * NB + i // Q
    real = exists & (i < NB * Q) & (t <= n)
    zy, k = tl.arange(0, SP)[:, None, None], tl.arange(0, NP)[None, :, None]
    square = zy * NP * NP + k * NP + i
    s4, z4 = tl.arange(0, QP)[:, None, None, None], tl.arange(0, SP)[None, :, None, None]
    u4, y4 = tl.arange(0, QP)[None, None, :, None], tl.arange(0, SP)[None, None, None, :]
    stays = (s4 < Q) & (z4 < S) & (u4 < Q) & (y4 < S)
    from_to = (y4 * Q + u4) * C + z4 * Q + s4

    f = tl.load(factor + (b * (T + 1) + t) * C + z * Q + i % Q, mask=real, other=0.0)
    r = tl.zeros((QP, SP, NP), dtype)
    w = r
    if (J > 0) & (d + 1 < diagonals):
        line = z * NP * NP + ((NB - 1) * Q + s) * NP + i
        r = tl.load(above_R + line, mask=exists, other=0.0)
        w = tl.load(above_W + line, mask=exists, other=0.0)
    live = stays & (z4 < tl.where(J > 0, S, 0))
    pi = tl.load(push + (J * NB - 1) * C * C + from_to, mask=live, other=0.0)
    rho = tl.load(replace + (J * NB - 1) * C * C + from_to, mask=live, other=0.0)
    for jl in range(NB):
        j = J * NB + jl
        line = z * NP * NP + (jl * Q + s) * NP + i
        left = tl.load(sums_W + line, mask=exists, other=0.0)
        if (j > 0) & (j <= n):
            added = tl.load(sums_R + line, mask=exists, other=0.0)
            r = tl.sum(tl.sum(rho[:, :, :, :, None] * r[None, None], 2), 2) + added
            r += tl.sum(tl.sum(pi[:, :, :, :, None] * (w * f)[None, None], 2), 2)
            for first in range(0, jl * Q, KB):
                earlier = first + tl.arange(0, KB)
                at = z * NP * NP + earlier[None, None, :] * NP + jl * Q + s
                popped = tl.load(within + at, mask=exists & (earlier < jl * Q)[None, None, :], other=0.0)
                at = zy * NP * NP + earlier[None, :, None] * NP + i
                before = tl.load(R_ + at, mask=(zy < S) & (earlier < jl * Q)[None, :, None], other=0.0)
                r += tl.sum(popped[:, :, :, None] * before[None], 2)
            r = tl.where(real & (t > j) & (t - j <= window), r, 0.0)
        else:
            r = tl.zeros((QP, SP, NP), dtype)
        tl.store(R_ + line, r, mask=exists)
        live = stays & (z4 < tl.where(j < n, S, 0))
        pi = tl.load(push + j * C * C + from_to, mask=live, other=0.0)  # of the next row
        rho = tl.load(replace + j * C * C + from_to, mask=live, other=0.0)
        tl.debug_barrier()  # other threads read this row
        w = left
        for first in range(0, NP, KB):
            later = first + tl.arange(0, KB)
            mine = tl.load(R_ + z * NP * NP + (jl * Q + s) * NP + later[None, None, :], mask=exists, other=0.0)
            slot = tl.load(slots + zy * NP * NP + later[None, :, None] * NP + i, mask=zy < S, other=0.0)
            w += tl.sum(mine[:, :, :, None] * slot[None], 2)
        w = tl.where(real & (t > j + 1) & (t - j - 1 <= window), w, 0.0)
        tl.store(W_ + line, w, mask=exists)
    if NB * Q < NP:
        padding = (zy < S) & (k >= NB * Q)
        tl.store(R_ + square, tl.zeros((SP, NP, NP), dtype), mask=padding)
        tl.store(W_ + square, tl.zeros((SP, NP, NP), dtype), mask=padding)

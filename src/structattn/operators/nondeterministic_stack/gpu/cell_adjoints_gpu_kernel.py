"""Adjoints of the cells in Triton, on anti-diagonals of tiles from long spans to short: (b) of adjoints_reference.py.

For the tiles (J,I) of an anti-diagonal, `products` sums over tiles of spans that are longer by two or more; `rows`
adds the others and solves the tile row by row.
"""

import triton
import triton.language as tl


@triton.jit
def tile(J, I, S: tl.constexpr, NP: tl.constexpr):
    """Return the offset of tile (J,I) in a sequence's table."""
    return (I * (I + 1) // 2 + J) * S * NP * NP


@triton.jit
def _later(x, R, R_, J, I, K, at, S: tl.constexpr, NP: tl.constexpr, PRECISION: tl.constexpr):
    """Return x + R̄[J,K] R[I,K]ᵀ of one symbol."""
    adjoint, to = tl.load(R_ + tile(J, K, S, NP) + at), tl.load(R + tile(I, K, S, NP) + at)
    return x + tl.dot(adjoint, tl.trans(to), input_precision=PRECISION, out_dtype=R.dtype.element_ty)


@triton.jit
def _earlier(x, W, R_, K, J, I, at, S: tl.constexpr, NP: tl.constexpr, PRECISION: tl.constexpr):
    """Return x + W[K,J]ᵀ R̄[K,I] of one symbol."""
    w, adjoint = tl.load(W + tile(K, J, S, NP) + at), tl.load(R_ + tile(K, I, S, NP) + at)
    return x + tl.dot(tl.trans(w), adjoint, input_precision=PRECISION, out_dtype=W.dtype.element_ty)


@triton.jit(do_not_specialize=["d", "T", "blocks", "diagonals", "M"])
def products(
    R, W, R_, E, y, lengths, sums_W, sums_R, d, T, blocks, diagonals, M,
    Q: tl.constexpr, S: tl.constexpr, NP: tl.constexpr, MB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write (1, E_J) y_Iᵀ + Σ_{K>I+1} R̄[J,K] R[I,K]ᵀ and Σ_{K<J-1} W[K,J]ᵀ R̄[K,I] for one symbol."""
    C: tl.constexpr = Q * S
    NB: tl.constexpr = NP // Q
    J, z, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    I = J + d
    last = tl.load(lengths + b) // NB
    if I > last:
        return
    dtype = R.dtype.element_ty
    i, k = tl.arange(0, NP)[:, None], tl.arange(0, NP)[None, :]
    table = b * (blocks * (blocks + 1) // 2) * S * NP * NP + z * NP * NP
    R, W, R_ = R + table, W + table, R_ + table
    own = ((b * blocks + J) * S + z) * NP * NP + i * NP + k

    column = tl.arange(0, MB)[None, :]
    j, t = J * NB + i // Q, I * NB + i // Q
    E += (b * (T + 1) + j) * C * M + (z * Q + i % Q) * M
    y += (b * (T + 1) + t) * C * (1 + M) + (z * Q + i % Q) * (1 + M)
    x = tl.zeros((NP, NP), dtype)
    for first in range(0, 1 + M, MB):
        m = first + column
        real = (i < NB * Q) & (m < 1 + M)
        e = tl.load(E + m - 1, mask=real & (m > 0) & (j <= T), other=0.0)
        e = tl.where(real & (m == 0), 1.0, e).to(dtype)
        later = tl.load(y + m, mask=real & (t <= T), other=0.0).to(dtype)
        x += tl.dot(e, tl.trans(later), input_precision=PRECISION, out_dtype=dtype)
    for K in range(I + 2, tl.minimum(last + 1, J + diagonals)):
        x = _later(x, R, R_, J, I, K, i * NP + k, S, NP, PRECISION)
    tl.store(sums_W + own, x)

    x = tl.zeros((NP, NP), dtype)
    for K in range(tl.maximum(I - diagonals + 1, 0), J - 1):
        x = _earlier(x, W, R_, K, J, I, i * NP + k, S, NP, PRECISION)
    tl.store(sums_R + own, x)


@triton.jit(do_not_specialize=["d", "T", "blocks", "diagonals", "window"])
def rows(
    slots, R, W, R_, W_, push, replace, factor, lengths, sums_W, sums_R, d, T, blocks, diagonals, window,
    Q: tl.constexpr, S: tl.constexpr, CP: tl.constexpr, NP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Solve the tile for rising j; its first row continues the last one of tile (J-1,I).

    A row is a matrix of all configurations, as in `solve`. ``slots`` (B, blocks, S, NP, NP) is R[I,I] transposed.
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
    R, W, whole = R + table, W + table, R_ + table
    R_, W_ = R_ + table + tile(J, I, S, NP), W_ + table + tile(J, I, S, NP)
    sums_W, sums_R = sums_W + (b * blocks + J) * S * NP * NP, sums_R + (b * blocks + J) * S * NP * NP
    push, replace = push + b * T * C * C, replace + b * T * C * C

    c, i, k = tl.arange(0, CP)[:, None], tl.arange(0, NP)[None, :], tl.arange(0, NP)[:, None]
    z, t, start = c // Q, I * NB + i // Q, tl.arange(0, CP)[None, :]
    exists, moves = c < C, (c < C) & (start < C)
    real = exists & (i < NB * Q) & (t <= n)
    row = z * NP * NP + c % Q * NP + i
    for symbol in range(tl.where(d + 1 < diagonals, S, 0)):
        at, first = k * NP + i, symbol * NP * NP
        if I + 1 <= n // NB:
            x = _later(tl.load(sums_W + first + at), R + first, whole + first, J, I, I + 1, at, S, NP, PRECISION)
            tl.store(sums_W + first + at, x)
        if J > 0:
            x = _earlier(tl.load(sums_R + first + at), W + first, whole + first, J - 1, J, I, at, S, NP, PRECISION)
            tl.store(sums_R + first + at, x)
    tl.debug_barrier()
    f = tl.load(factor + (b * (T + 1) + t) * C + z * Q + i % Q, mask=real, other=0.0)
    r = tl.zeros((CP, NP), dtype)
    w = r
    if (J > 0) & (d + 1 < diagonals):
        r = tl.load(above_R + (NB - 1) * Q * NP + row, mask=exists, other=0.0)
        w = tl.load(above_W + (NB - 1) * Q * NP + row, mask=exists, other=0.0)
    for jl in range(NB):
        j = J * NB + jl
        line = jl * Q * NP + row
        if (j > 0) & (j <= n):
            move = (j - 1) * C * C + start * C + c
            pi = tl.load(push + move, mask=moves, other=0.0)
            rho = tl.load(replace + move, mask=moves, other=0.0)
            r = tl.dot(rho, r, input_precision=PRECISION, out_dtype=dtype)
            r += tl.dot(pi, w * f, input_precision=PRECISION, out_dtype=dtype)
            r += tl.load(sums_R + line, mask=exists, other=0.0)
            tl.debug_barrier()  # other threads read the rows that were written
            for y in range(S):
                at = y * NP * NP + i * NP + jl * Q + c % Q
                popped = tl.load(within + at, mask=exists & (z == y) & (i < jl * Q), other=0.0)
                before = tl.load(R_ + y * NP * NP + k * NP + i, mask=k < jl * Q, other=0.0)
                r += tl.dot(popped, before, input_precision=PRECISION, out_dtype=dtype)
            r = tl.where(real & (t > j) & (t - j <= window), r, 0.0)
        else:
            r = tl.zeros((CP, NP), dtype)
        tl.store(R_ + line, r, mask=exists)
        w = tl.load(sums_W + line, mask=exists, other=0.0)
        for y in range(S):
            slot = tl.load(slots + y * NP * NP + k * NP + i)
            w += tl.dot(tl.where(z == y, r, 0.0), slot, input_precision=PRECISION, out_dtype=dtype)
        w = tl.where(real & (t > j + 1) & (t - j - 1 <= window), w, 0.0)
        tl.store(W_ + line, w, mask=exists)
    if NB * Q < NP:
        for symbol in range(S):
            nothing, square = tl.zeros((NP, NP), dtype), symbol * NP * NP + k * NP + i
            tl.store(R_ + square, nothing, mask=k >= NB * Q)
            tl.store(W_ + square, nothing, mask=k >= NB * Q)

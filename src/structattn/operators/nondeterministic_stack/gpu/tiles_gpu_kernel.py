"""The tables in tiles, from short spans to long: two kernels for each anti-diagonal of tiles (J, J + d).

Legend in tiles.py. `gemm` sums over the blocks K between J and I but the first and the last, which `solve` adds: what
remains depends row by row on itself.
Exponents do not occur: p is near α, and the guard refuses tables that lose too much.
"""

import triton
import triton.language as tl


@triton.jit
def tile_at(J, I):
    """Return the index of tile (J,I)."""
    return I * (I + 1) // 2 + J


@triton.jit
def _between(x, P, w, J, K, I, at, SIZE: tl.constexpr, PRECISION: tl.constexpr):
    """Return x + w^[J,K] P^[K,I] of one symbol."""
    left = tl.load(w + tile_at(J, K) * SIZE + at)
    right = tl.load(P + tile_at(K, I) * SIZE + at)
    return x + tl.dot(left, right, input_precision=PRECISION, out_dtype=P.dtype.element_ty)


@triton.jit(do_not_specialize=["d", "nb", "tiles"])
def gemm(
    P, w, sums, lengths, d, nb, tiles,
    Q: tl.constexpr, S: tl.constexpr, NP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute Σ_{J+1<K<I-1} w^[J,K] P^[K,I] of one symbol."""
    J, z, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    I = J + d
    inside = I * (NP // Q) <= tl.load(lengths + b)
    P += b * tiles * S * NP * NP + z * NP * NP
    w += b * tiles * S * NP * NP + z * NP * NP
    at = tl.arange(0, NP)[:, None] * NP + tl.arange(0, NP)[None, :]
    x = tl.zeros((NP, NP), P.dtype.element_ty)
    for K in range(J + 2, tl.where(inside, I - 1, 0)):
        x = _between(x, P, w, J, K, I, at, S * NP * NP, PRECISION)
    tl.store(sums + ((b * nb + J) * S + z) * NP * NP + at, x)


@triton.jit(do_not_specialize=["d", "nb", "tiles", "T", "D"])
def solve(
    P, w, sums, pi, rho, pops, factor, lengths, d, nb, tiles, T, D,
    Q: tl.constexpr, S: tl.constexpr, CP: tl.constexpr, NP: tl.constexpr, PRECISION: tl.constexpr,
    DIAGONAL: tl.constexpr, NEAR: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """Compute the rows j of one tile from the last to the first, for all columns and symbols at once.

    A row is a matrix of all configurations (s,z) at time j, so that its transitions are one product; products of one
    symbol take the rows of that symbol alone. ``DIAGONAL`` if d = 0; ``NEAR`` if d > 1, where blocks lie between;
    ``FAR`` if d > 3, where `gemm` has left sums.
    """
    C: tl.constexpr = Q * S
    NB: tl.constexpr = NP // Q
    SIZE: tl.constexpr = S * NP * NP
    J, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    I = J + d
    n = tl.load(lengths + b)
    P, w, sums = P + b * tiles * SIZE, w + b * tiles * SIZE, sums + (b * nb + J) * SIZE
    pi, rho, pops, factor = pi + b * T * C * C, rho + b * T * C * C, pops + b * T * C * Q, factor + b * (T + 1) * C
    own, rows, columns = tile_at(J, I) * SIZE, tile_at(J, J) * SIZE, tile_at(I, I) * SIZE
    c, i, k = tl.arange(0, CP)[:, None], tl.arange(0, NP)[None, :], tl.arange(0, NP)[:, None]
    z, t, r, end = c // Q, I * NB + i // Q, i % Q, tl.arange(0, CP)[None, :]
    known, real, moves = c < C, (c < C) & (i < NB * Q) & (t <= n), (c < C) & (end < C)
    line = z * NP * NP + c % Q * NP + i
    dtype = P.dtype.element_ty

    count = tl.minimum(tl.where(I * NB <= n, n - J * NB, 0), NB)  # rows with numbers; none in a tile past the length
    for symbol in range(S):
        nothing = tl.zeros((NP, NP), dtype)
        tl.store(P + own + symbol * NP * NP + k * NP + i, nothing, mask=k >= count * Q)
        tl.store(w + own + symbol * NP * NP + k * NP + i, nothing, mask=k >= count * Q)
    if NEAR:
        for symbol in range(tl.where(count > 0, S, 0)):
            first, at = symbol * NP * NP, k * NP + i
            x = tl.zeros((NP, NP), dtype)
            if FAR:
                x = tl.load(sums + first + at)
            for K in range(J + 1, I, tl.maximum(d - 2, 1)):
                x = _between(x, P + first, w + first, J, K, I, at, SIZE, PRECISION)
            tl.store(sums + first + at, x)
    f = tl.load(factor + t * C + z * Q + r, mask=real, other=0.0)
    after = tl.zeros((CP, NP), dtype)  # row j + 1
    if not DIAGONAL:
        after = tl.load(P + tile_at(J + 1, I) * SIZE + line, mask=known, other=0.0)
    for back in range(count):
        local = count - 1 - back
        j = J * NB + local
        here = local * Q * NP + line
        tl.debug_barrier()  # other threads read the rows that were written
        move = tl.load(pi + j * C * C + c * C + end, mask=moves, other=0.0)
        popped = tl.dot(move, after, input_precision=PRECISION, out_dtype=dtype) * f
        popped = tl.where(real & (t >= j + 2) & (t - j - 1 <= D), popped, 0.0)
        tl.store(w + own + here, popped, mask=known)
        if NEAR:
            row = tl.load(sums + here, mask=known, other=0.0)
        else:
            row = tl.load(pops + (j * C + c) * Q + r, mask=real & (t == j + 1), other=0.0)
        move = tl.load(rho + j * C * C + c * C + end, mask=moves, other=0.0)
        row += tl.dot(move, after, input_precision=PRECISION, out_dtype=dtype)
        for y in range(S):
            later = tl.load(P + own + y * NP * NP + k * NP + i, mask=k >= (local + 2) * Q, other=0.0)
            if DIAGONAL:
                left = tl.where(z == y, popped, 0.0)
            else:
                left = tl.load(w + rows + here, mask=known & (z == y), other=0.0)
                slots = tl.load(P + columns + y * NP * NP + k * NP + i)
                mine = tl.where(z == y, popped, 0.0)
                row += tl.dot(mine, slots, input_precision=PRECISION, out_dtype=dtype)
            row += tl.dot(left, later, input_precision=PRECISION, out_dtype=dtype)
        row = tl.where(real & (t >= j + 1) & (t - j <= tl.where(j > 0, D, 0)), row, 0.0)
        tl.store(P + own + here, row, mask=known)
        after = row

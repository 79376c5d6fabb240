"""The tables in tiles, from short spans to long: `gemm` and `solve` for each anti-diagonal of tiles (J, J + d).

Legend in tiles.py. `gemm` sums over the blocks K between J and I; what remains depends row by row on itself and is left
to `solve`. Only the blocks next to J and I need the anti-diagonal before: all others are summed beside it.
Exponents do not occur: p is near α, and the guard refuses tables that lose too much.
"""

import triton
import triton.language as tl


@triton.jit
def tile_at(J, I):
    """Return the index of tile (J,I)."""
    return I * (I + 1) // 2 + J


@triton.jit(do_not_specialize=["d", "nb", "tiles"])
def gemm(
    P, w, sums, lengths, d, nb, tiles,
    Q: tl.constexpr, S: tl.constexpr, NP: tl.constexpr, PRECISION: tl.constexpr, NEAREST: tl.constexpr,
):  # fmt: skip
    """Compute Σ w^[J,K] P^[K,I] of one symbol over J+1 < K < I-1; or, if ``NEAREST``, add those for J+1 and I-1."""
    J, z, b = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    I = J + d
    if I * (NP // Q) > tl.load(lengths + b):
        return
    P += b * tiles * S * NP * NP + z * NP * NP
    w += b * tiles * S * NP * NP + z * NP * NP
    sums += ((b * nb + J) * S + z) * NP * NP
    at = tl.arange(0, NP)[:, None] * NP + tl.arange(0, NP)[None, :]
    x = tl.zeros((NP, NP), P.dtype.element_ty)
    first, last, step = J + 2, I - 2, 1
    if NEAREST:
        first, last, step = J + 1, I - 1, tl.maximum(d - 2, 1)
        if d > 3:
            x = tl.load(sums + at)
    for K in range(first, last + 1, step):
        left = tl.load(w + tile_at(J, K) * S * NP * NP + at)
        right = tl.load(P + tile_at(K, I) * S * NP * NP + at)
        x += tl.dot(left, right, input_precision=PRECISION, out_dtype=P.dtype.element_ty)
    tl.store(sums + at, x)


@triton.jit(do_not_specialize=["d", "nb", "tiles", "T", "D"])
def solve(
    P, w, sums, pi, rho, pops, factor, lengths, d, nb, tiles, T, D,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, SP: tl.constexpr, NP: tl.constexpr, KB: tl.constexpr,
    DIAGONAL: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """Compute the rows j of one tile from the last to the first, for all columns and symbols at once.

    One warp: a thread holds all configurations of its column, so that no sum leaves it. ``KB`` rows of a product are
    taken at a time. What does not depend on a row is loaded before it is needed. ``DIAGONAL`` if d = 0; ``FAR`` if
    d > 1, where `gemm` has left sums.
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
    s, z, i = tl.arange(0, QP)[:, None, None], tl.arange(0, SP)[None, :, None], tl.arange(0, NP)[None, None, :]
    c, t, r = z * Q + s, I * NB + i // Q, i % Q
    known, real = (s < Q) & (z < S), (s < Q) & (z < S) & (i < NB * Q) & (t <= n)
    line = z * NP * NP + s * NP + i
    y = tl.arange(0, SP)[:, None, None]
    q4, z4 = tl.arange(0, QP)[:, None, None, None], tl.arange(0, SP)[None, :, None, None]
    u4, v4 = tl.arange(0, QP)[None, None, :, None], tl.arange(0, SP)[None, None, None, :]
    move, moves = (z4 * Q + q4) * C + v4 * Q + u4, (q4 < Q) & (z4 < S) & (u4 < Q) & (v4 < S)

    if I * NB > n:  # nobody reads it
        return
    count = tl.minimum(n - J * NB, NB)  # rows with numbers
    for first in range(count * Q // KB * KB, NP, KB):
        k = first + tl.arange(0, KB)[None, :, None]
        rest, nothing = (y < S) & (k >= count * Q), tl.zeros((SP, KB, NP), P.dtype.element_ty)
        tl.store(P + own + y * NP * NP + k * NP + i, nothing, mask=rest)
        tl.store(w + own + y * NP * NP + k * NP + i, nothing, mask=rest)
    f = tl.load(factor + t * C + z * Q + r, mask=real, other=0.0)
    after = tl.zeros((QP, SP, NP), P.dtype.element_ty)  # row j + 1
    if not DIAGONAL:
        after = tl.load(P + tile_at(J + 1, I) * SIZE + line, mask=known, other=0.0)
    live = moves & (z4 < tl.where(count > 0, S, 0))
    pushes = tl.load(pi + (J * NB + count - 1) * C * C + move, mask=live, other=0.0)
    stays = tl.load(rho + (J * NB + count - 1) * C * C + move, mask=live, other=0.0)
    for back in range(count):
        local = count - 1 - back
        j = J * NB + local
        at = local * Q * NP + line
        if FAR:
            row = tl.load(sums + at, mask=known, other=0.0)
        else:
            row = tl.load(pops + (j * C + c) * Q + r, mask=real & (t == j + 1), other=0.0)
        popped = tl.sum(tl.sum(pushes[:, :, :, :, None] * after[None, None], 2), 2) * f
        popped = tl.where(real & (t >= j + 2) & (t - j - 1 <= D), popped, 0.0)
        tl.store(w + own + at, popped, mask=known)
        row += tl.sum(tl.sum(stays[:, :, :, :, None] * after[None, None], 2), 2)
        live = moves & (z4 < tl.where(local > 0, S, 0))
        pushes = tl.load(pi + (j - 1) * C * C + move, mask=live, other=0.0)  # of the next row
        stays = tl.load(rho + (j - 1) * C * C + move, mask=live, other=0.0)
        tl.debug_barrier()  # other threads read this row of w and the last one of P
        for first in range((local + 2) * Q // KB * KB, NB * Q, KB):
            k = first + tl.arange(0, KB)
            pop_row = tl.load(w + rows + z * NP * NP + (local * Q + s) * NP + k[None, None, :], mask=known, other=0.0)
            later = (k >= (local + 2) * Q)[None, :, None] & (y < S)
            mine = tl.load(P + own + y * NP * NP + k[None, :, None] * NP + i, mask=later, other=0.0)
            row += tl.sum(pop_row[:, :, :, None] * mine[None], 2)
        if not DIAGONAL:
            for first in range(0, NB * Q, KB):
                k = first + tl.arange(0, KB)
                own_row = tl.load(
                    w + own + z * NP * NP + (local * Q + s) * NP + k[None, None, :], mask=known, other=0.0
                )
                slots = tl.load(P + columns + y * NP * NP + k[None, :, None] * NP + i, mask=y < S, other=0.0)
                row += tl.sum(own_row[:, :, :, None] * slots[None], 2)
        row = tl.where(real & (t >= j + 1) & (t - j <= tl.where(j > 0, D, 0)), row, 0.0)
        tl.store(P + own + at, row, mask=known)
        after = row

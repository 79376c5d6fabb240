"""Adjoints y = (L, Ē) of the prefixes in Triton: equations (a) of adjoints_reference.py, in float64.

y is (B, T+1, C, 1+m) and holds, before a block's turn, its source and the terms of later blocks.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["T", "M"])
def sources(
    a, E, readings_, log_weight_, lengths, exponents, y, T, M,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, SP: tl.constexpr, MB: tl.constexpr,
):  # fmt: skip
    """Write a_t (ℓ̄_t − <r̄_t, reading_t>, r̄_t) 2^-exponent for one t; zeros past the length and at time 0."""
    C: tl.constexpr = Q * S
    t, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    here = (t > 0) & (t <= tl.load(lengths + b))
    factor = tl.exp2(-tl.load(exponents + b).to(tl.float64))
    p, column = tl.arange(0, QP * SP), tl.arange(0, MB)
    s, z = p % QP, p // QP
    c, real = z * Q + s, (s < Q) & (z < S)
    kept_c = real & (z < tl.where(here, S, 0))
    share = tl.load(a + (b * (T + 1) + t) * C + c, mask=kept_c, other=0.0) * factor
    y += (b * (T + 1) + t) * C * (1 + M)
    E += (b * (T + 1) + t) * C * M
    readings_ += (b * T + t - 1) * C * M
    total = tl.load(log_weight_ + b * T + t - 1, mask=here, other=0.0).to(tl.float64)
    for first in range(0, M, MB):
        m = first + column
        kept = kept_c[:, None] & (m < M)[None, :]
        cotangent = tl.load(readings_ + (s * S + z)[:, None] * M + m[None, :], mask=kept, other=0.0).to(tl.float64)
        cotangent *= share[:, None]
        total -= (
            tl.sum(tl.sum(cotangent * tl.load(E + c[:, None] * M + m[None, :], mask=kept, other=0.0), 1), 0) / factor
        )
        tl.store(y + c[:, None] * (1 + M) + 1 + m[None, :], cotangent, mask=real[:, None] & (m < M)[None, :])
    tl.store(y + c * (1 + M), share * total, mask=real)


@triton.jit(do_not_specialize=["I", "T", "blocks", "diagonals", "M", "value_stride"])
def block_of_prefixes(
    W, push, replace, values, lengths, y, I, T, blocks, diagonals, M, value_stride,
    Q: tl.constexpr, S: tl.constexpr, CP: tl.constexpr, NP: tl.constexpr, MB: tl.constexpr,
):  # fmt: skip
    """Add the terms of block I + 1 to y of block J = I - d, which is complete then for d = 0; solve that block."""
    C: tl.constexpr = Q * S
    NB: tl.constexpr = NP // Q
    d, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n = tl.load(lengths + b)
    J = I - d
    if I * NB > n:
        return
    W += b * (blocks * (blocks + 1) // 2) * S * NP * NP
    y += b * (T + 1) * C * (1 + M)
    if (I + 1 < blocks) & ((I + 1) * NB <= n) & (d + 1 < diagonals):
        _later_block(W + ((I + 1) * (I + 2) // 2 + J) * S * NP * NP, y, J, I + 1, T, M, Q, S, NP, MB)
    if d == 0:
        tl.debug_barrier()
        W += (I * (I + 1) // 2 + I) * S * NP * NP
        push, replace, values = push + b * T * C * C, replace + b * T * C * C, values + b * value_stride
        for back in range(NB):
            t = I * NB + NB - 1 - back
            if t <= n:
                _step(W, push, replace, values, y, t, I, n, T, M, Q, S, CP, NP, MB)
                tl.debug_barrier()


@triton.jit
def _later_block(W, y, J, K, T, M, Q: tl.constexpr, S: tl.constexpr, NP: tl.constexpr, MB: tl.constexpr):
    """Add W[J,K] y of block K to y of block J."""
    C: tl.constexpr = Q * S
    NB: tl.constexpr = NP // Q
    i, k, column = tl.arange(0, NP)[:, None], tl.arange(0, NP)[None, :], tl.arange(0, MB)[None, :]
    to, t = J * NB + i // Q, K * NB + i // Q
    for z in range(S):
        w = tl.load(W + z * NP * NP + i * NP + k).to(tl.float64)
        for first in range(0, 1 + M, MB):
            m = first + column
            real = (i < NB * Q) & (m < 1 + M)
            later = tl.load(y + (t * C + z * Q + i % Q) * (1 + M) + m, mask=real & (t <= T), other=0.0)
            at = y + (to * C + z * Q + i % Q) * (1 + M) + m
            x = tl.load(at, mask=real, other=0.0)
            tl.store(at, x + tl.dot(w, later, input_precision="ieee", out_dtype=tl.float64), mask=real)


@triton.jit
def _step(
    W, push, replace, values, y, t, I, n, T, M,
    Q: tl.constexpr, S: tl.constexpr, CP: tl.constexpr, NP: tl.constexpr, MB: tl.constexpr,
):  # fmt: skip
    """Complete y_t from the later times of its block; ``W`` is the block's own tile."""
    C: tl.constexpr = Q * S
    NB: tl.constexpr = NP // Q
    c, d, column = tl.arange(0, CP)[:, None], tl.arange(0, CP)[None, :], tl.arange(0, MB)[None, :]
    real, after = c < C, tl.where(t < n, C, 0)  # configurations of the time after
    q = tl.zeros((CP,), tl.float64)
    for first in range(0, 1 + M, MB):
        m = first + column
        x = tl.load(y + ((t + 1) * C + c) * (1 + M) + m, mask=(c < after) & (m < 1 + M), other=0.0)
        v = tl.load(values + t * M + m - 1, mask=(m > 0) & (m < tl.where(t < n, 1 + M, 0)), other=0.0).to(tl.float64)
        q += tl.sum(x * tl.where(m == 0, 1.0, v), 1)
    moves = t * C * C + c * C + d
    stays = real & (d < after)
    pushed = tl.sum(tl.load(push + moves, mask=stays, other=0.0).to(tl.float64) * q[None, :], 1)[:, None]
    replaced = tl.load(replace + moves, mask=stays, other=0.0).to(tl.float64)
    i, k = tl.arange(0, NP)[None, :], tl.arange(0, NP)[:, None]
    local = t - I * NB
    for first in range(0, 1 + M, MB):
        m = first + column
        kept = real & (m < 1 + M)
        at = y + (t * C + c) * (1 + M) + m
        mine = tl.load(at, mask=kept, other=0.0) + tl.where(m == 0, pushed, 0.0)
        x = tl.load(y + ((t + 1) * C + c) * (1 + M) + m, mask=(c < after) & (m < 1 + M), other=0.0)
        mine += tl.dot(replaced, x, input_precision="ieee", out_dtype=tl.float64)
        for z in range(S):
            pops = real & (c // Q == z) & (i >= (local + 2) * Q) & (i < NB * Q) & (I * NB + i // Q <= n)
            w = tl.load(W + z * NP * NP + (local * Q + c % Q) * NP + i, mask=pops, other=0.0).to(tl.float64)
            later = (k >= (local + 2) * Q) & (k < NB * Q) & (I * NB + k // Q <= n)
            ys = y + ((I * NB + k // Q) * C + z * Q + k % Q) * (1 + M) + m
            ys = tl.load(ys, mask=later & (m < 1 + M), other=0.0)
            mine += tl.dot(w, ys, input_precision="ieee", out_dtype=tl.float64)
        tl.store(at, mine, mask=kept)

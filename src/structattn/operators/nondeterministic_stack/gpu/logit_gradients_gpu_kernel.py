"""Gradients of one step's logits and vector in Triton, from the adjoints: (c) of adjoints_reference.py."""

import triton
import triton.language as tl

from structattn.operators.nondeterministic_stack.gpu.cell_adjoints_gpu_kernel import tile


@triton.jit(do_not_specialize=["T", "blocks", "diagonals", "M", "value_stride"])
def step_gradients(
    R, R_, W_, push, replace, factor, E, y, values, lengths, exponents, push_, replace_, pop_, values_,
    T, blocks, diagonals, M, value_stride,
    Q: tl.constexpr, S: tl.constexpr, QP: tl.constexpr, SP: tl.constexpr, NP: tl.constexpr, CP: tl.constexpr,
    MB: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of step j; zeros past the length."""
    C: tl.constexpr = Q * S
    NB: tl.constexpr = NP // Q
    j, b = tl.program_id(0) + 1, tl.program_id(1).to(tl.int64)
    n = tl.load(lengths + b)
    dtype = R.dtype.element_ty
    table = b * (blocks * (blocks + 1) // 2) * S * NP * NP
    R, R_, W_ = R + table, R_ + table, W_ + table
    p, i, column = tl.arange(0, CP), tl.arange(0, NP)[None, :], tl.arange(0, MB)
    s, z = p % QP, p // QP
    c, real = z * Q + s, (s < Q) & (z < S)
    J, before = j // NB, (j - 1) // NB
    line = (z * NP * NP + (j % NB * Q + s) * NP)[:, None] + i
    line_before = (z * NP * NP + ((j - 1) % NB * Q + s) * NP)[:, None] + i
    pushed, replaced = tl.zeros((CP, CP), dtype), tl.zeros((CP, CP), dtype)
    for I in range(J, tl.where(j <= n, tl.minimum(n // NB + 1, before + diagonals), J)):
        t = I * NB + i // Q
        kept = real[:, None] & (i < NB * Q) & (t <= n)
        slots = tl.trans(tl.load(R + tile(J, I, S, NP) + line, mask=kept, other=0.0))
        f = tl.load(factor + (b * (T + 1) + t) * C + z[:, None] * Q + i % Q, mask=kept, other=0.0)
        above = tl.load(W_ + tile(before, I, S, NP) + line_before, mask=kept, other=0.0) * f
        pushed += tl.dot(above, slots, input_precision=PRECISION, out_dtype=dtype)
        above = tl.load(R_ + tile(before, I, S, NP) + line_before, mask=kept, other=0.0)
        replaced += tl.dot(above, slots, input_precision=PRECISION, out_dtype=dtype)

    scale = tl.exp2(tl.load(exponents + b).to(tl.float64))
    here = real & (z < tl.where(j <= n, S, 0))
    square = c[:, None] * C + c[None, :]
    pi = tl.load(push + (b * T + j - 1) * C * C + square, mask=here[:, None] & real[None, :], other=0.0)
    rho = tl.load(replace + (b * T + j - 1) * C * C + square, mask=here[:, None] & real[None, :], other=0.0)
    pi, rho = pi.to(tl.float64), rho.to(tl.float64)
    total, q, products = tl.sum(pi, 0), tl.zeros((CP,), tl.float64), tl.zeros((CP, CP), tl.float64)
    E += (b * (T + 1) + j - 1) * C * M
    y += (b * (T + 1) + j) * C * (1 + M)
    for first in range(0, 1 + M, MB):
        m = first + column
        kept, vector = here[:, None] & (m < 1 + M)[None, :], (m > 0) & (m < 1 + M)
        later = tl.load(y + c[:, None] * (1 + M) + m[None, :], mask=kept, other=0.0)
        e = tl.load(E + c[:, None] * M + m[None, :] - 1, mask=kept & (m > 0)[None, :], other=0.0)
        e = tl.where((m == 0)[None, :] & kept, 1.0, e)
        products += tl.dot(e, tl.trans(later), input_precision="ieee", out_dtype=tl.float64)
        v = tl.load(
            values + b * value_stride + (j - 1) * M + m - 1, mask=vector & (m < tl.where(j <= n, 1 + M, 0)), other=0.0
        ).to(tl.float64)
        q += tl.sum(later * tl.where(m == 0, 1.0, v)[None, :], 1)
        v_ = tl.sum(total[:, None] * later, 0) * scale
        tl.store(values_ + (b * T + j - 1) * M + m - 1, v_.to(values_.dtype.element_ty), mask=vector)
    out = (b * T + j - 1) * C * C + (s * S + z)[:, None] * C + (s * S + z)[None, :]
    kept = real[:, None] & real[None, :]
    x = pi * (q[None, :] + pushed.to(tl.float64)) * scale
    tl.store(push_ + out, x.to(push_.dtype.element_ty), mask=kept)
    x = rho * (products + replaced.to(tl.float64)) * scale
    tl.store(replace_ + out, x.to(push_.dtype.element_ty), mask=kept)

    r = tl.arange(0, QP)[None, :]
    at = tile(before, J, S, NP) + (z * NP * NP + ((j - 1) % NB * Q + s) * NP)[:, None] + j % NB * Q + r
    kept = real[:, None] & (r < Q)
    popped = kept & (z < tl.where((j > 1) & (j <= n), S, 0))[:, None]
    x = tl.load(R + at, mask=popped, other=0.0).to(tl.float64) * tl.load(R_ + at, mask=popped, other=0.0).to(tl.float64)
    out = (b * T + j - 1) * C * Q + (s * S + z)[:, None] * Q + r
    tl.store(pop_ + out, (x * scale).to(pop_.dtype.element_ty), mask=kept)

"""Readings from the map in Triton, r_t = sum_c M[t, c] h_c, and the adjoints of both factors.

Legend: T padded length, n <= T steps of a sequence, m columns; h_0 the initial row, or zero, and h_c the value of step
c - 1, counted from 0. M[t, c] is zero for c > t + 1, and not read there. Blocks of R rows by C columns, K at a time.
"""

import triton
import triton.language as tl

from structattn.operators.superposition_stack.gpu.forward_gpu_kernel import length_of


@triton.jit
def _vectors(values, initial, c, x, n, m, FULL: tl.constexpr):
    """h_c for columns x."""
    h = tl.load(values + (c - 1) * m + x, mask=(c >= 1) & (c <= n) & (x < m), other=0.0)
    if FULL:
        h += tl.load(initial + x + 0 * c, mask=(c == 0) & (x < m), other=0.0)
    return h


@triton.jit
def _is_finite(x):
    return tl.abs(x) < float("inf")


@triton.jit(do_not_specialize=["T", "m"])
def product(
    maps, values, initial, lengths, readings, T, m,
    R: tl.constexpr, C: tl.constexpr, K: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """All readings, zeros from the length on. A vector that is not finite makes those NaN that may see it."""
    b = tl.program_id(2).to(tl.int64)
    ty: tl.constexpr = readings.dtype.element_ty
    n = length_of(lengths, b, T)
    first = tl.program_id(0) * R
    t, x = first + tl.arange(0, R)[:, None], tl.program_id(1) * C + tl.arange(0, C)[None, :]
    maps, values, readings, initial = maps + b * T * (T + 1), values + b * T * m, readings + b * T * m, initial + b * m
    sums, broken = tl.zeros((R, C), ty), tl.full((1, C), 2147483647, tl.int32)
    for start in range(0, tl.minimum(first + R, tl.where(first < n, n, -1)) + 1, K):
        c, row = start + tl.arange(0, K)[None, :], start + tl.arange(0, K)[:, None]
        weights = tl.load(maps + t * (T + 1) + c, mask=(t < n) & (c <= t + 1), other=0.0)
        h = _vectors(values, initial, row, x, n, m, FULL)
        broken = tl.minimum(broken, tl.min(tl.where(_is_finite(h), 2147483647, row), 0)[None, :])
        sums += tl.dot(weights, tl.where(_is_finite(h), h, 0.0), input_precision=PRECISION, out_dtype=ty)
    sums = tl.where(t + 1 >= broken, float("nan"), sums)
    tl.store(readings + t * m + x, tl.where(t < n, sums, 0.0), mask=(t < T) & (x < m))


@triton.jit(do_not_specialize=["T", "m"])
def map_adjoint(
    cotangents, values, initial, lengths, adjoint, T, m,
    R: tl.constexpr, C: tl.constexpr, K: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The adjoint of M where it is not zero: <cotangent of r_t, h_c>."""
    b = tl.program_id(2).to(tl.int64)
    ty: tl.constexpr = adjoint.dtype.element_ty
    n = length_of(lengths, b, T)
    first, start = tl.program_id(0) * R, tl.program_id(1) * C
    t, c = first + tl.arange(0, R)[:, None], start + tl.arange(0, C)[None, :]
    cotangents, values, initial = cotangents + b * T * m, values + b * T * m, initial + b * m
    if (start <= first + R) & (first < n):
        sums = tl.zeros((R, C), ty)
        for left in range(0, m, K):
            x, column = left + tl.arange(0, K)[None, :], left + tl.arange(0, K)[:, None]
            r = tl.load(cotangents + t * m + x, mask=(t < n) & (x < m), other=0.0)
            h = _vectors(values, initial, c, column, n, m, FULL)
            sums += tl.dot(r, tl.where(_is_finite(h), h, 0.0), input_precision=PRECISION, out_dtype=ty)
        tl.store(adjoint + b * T * (T + 1) + t * (T + 1) + c, sums, mask=(t < n) & (c <= t + 1))


@triton.jit(do_not_specialize=["T", "m"])
def vectors_adjoint(
    cotangents, maps, lengths, grad_values, grad_initial, T, m,
    R: tl.constexpr, C: tl.constexpr, K: tl.constexpr, FULL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The adjoint of h_c up to c = n: sum_t M[t, c] (cotangent of r_t)."""
    b = tl.program_id(2).to(tl.int64)
    ty: tl.constexpr = grad_values.dtype.element_ty
    n = length_of(lengths, b, T)
    first = tl.program_id(0) * R
    c, x = first + tl.arange(0, R)[:, None], tl.program_id(1) * C + tl.arange(0, C)[None, :]
    cotangents, maps = cotangents + b * T * m, maps + b * T * (T + 1)
    sums = tl.zeros((R, C), ty)
    for start in range(tl.maximum(first - 1, 0) // K * K, n, K):
        t, row = start + tl.arange(0, K)[None, :], start + tl.arange(0, K)[:, None]
        weights = tl.load(maps + t * (T + 1) + c, mask=(t < n) & (c <= t + 1), other=0.0)
        r = tl.load(cotangents + row * m + x, mask=(row < n) & (x < m), other=0.0)
        sums += tl.dot(weights, r, input_precision=PRECISION, out_dtype=ty)
    tl.store(grad_values + b * T * m + (c - 1) * m + x, sums, mask=(c >= 1) & (c <= n) & (x < m))
    if FULL:
        tl.store(grad_initial + b * m + x + 0 * c, sums, mask=(c == 0) & (x < m))

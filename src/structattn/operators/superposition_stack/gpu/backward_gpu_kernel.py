"""Superposition stack in Triton, backward: the adjoints of `forward_gpu_kernel`, with its legend.

U is the adjoint of the stack after a chunk and has its layout; y, (2L, WC), the cotangents of the chunk's readings and
the first L rows of U.
"""

import triton
import triton.language as tl

from structattn.operators.superposition_stack.gpu.forward_gpu_kernel import (
    action_of,
    boundary,
    first_chunk,
    length_of,
    net_pushes,
    stack_rows,
    weights_after,
)


@triton.jit
def adjoint_rows(adjoints, row, column, used, WC: tl.constexpr):
    """Rows of U, from row L on those of ``adjoints``; zeros from row ``used`` on, which no reading sees."""
    return tl.load(adjoints + row * WC + column, mask=(row >= 0) & (row < used), other=0.0)


@triton.jit
def used_rows(since, left, L: tl.constexpr):
    """The number of rows after a chunk that a later reading sees and that are not untouched."""
    return tl.where(left > L, tl.minimum(since + L, left - L + 1), 0)


@triton.jit
def cotangents_of(
    cotangents, adjoints, row, column, x, t, left, used, m, L: tl.constexpr, WC: tl.constexpr, UNITS: tl.constexpr
):
    """y; ``cotangents`` from the chunk's first step on, and no further in a row of a map than it may differ from 0."""
    end = tl.minimum(t + row + 2, m) if UNITS else m
    reading = tl.load(cotangents + row * m + x, mask=(row < L) & (row < left) & (x < end), other=0.0)
    return reading + adjoint_rows(adjoints, row - L, column, used, WC)


@triton.jit(do_not_specialize=["T", "m", "chunks", "room"])
def adjoints(
    cotangents, rows, pushed, lengths, adjoint_stacks, grad_values, grad_initial, T, m, chunks, room,
    L: tl.constexpr, WC: tl.constexpr, SLOTS: tl.constexpr, FULL: tl.constexpr, UNITS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The adjoint of the stack after each chunk and, after all, that of z; the gradients of values and initial row."""
    b, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    ty: tl.constexpr = adjoint_stacks.dtype.element_ty
    n = length_of(lengths, b, T)
    adjoint_stacks += (b * tl.num_programs(1) + tile) * room * WC
    column = tl.arange(0, WC)[None, :]
    x = tile * WC + column
    row, k = tl.arange(0, 2 * L)[:, None], tl.arange(0, 2 * L)[None, :]
    step, e = tl.arange(0, L)[:, None], tl.arange(0, 4 * L)[:, None]
    d = tl.arange(0, 4 * L)[None, :]
    untouched_ = tl.zeros((1, WC), ty)
    start, stop = first_chunk(tile, L, WC, UNITS), (n + L - 1) // L
    cotangents, grad_values = cotangents + b * T * m, grad_values + b * T * m
    for done in range(0, stop - start):
        i = stop - 1 - done
        t, since = i * L, (i - start) * L
        left = n - t
        weights, values_ = rows + (b * chunks + i) * SLOTS * 4 * L * L, pushed + (b * chunks + i) * 2 * L * L
        before = adjoint_stacks + boundary(i, chunks, L, True) * WC
        after = adjoint_stacks + boundary(i + 1, chunks, L, True) * WC
        used = used_rows(since, left, L)
        y = cotangents_of(cotangents + t * m, after, row, column, x, t, left, used, m, L, WC, UNITS)
        if not UNITS:
            # (L, 2L): the weight of the value of each step.
            v_ = tl.dot(tl.load(values_ + k * L + step), y, input_precision=PRECISION, out_dtype=ty)
            tl.store(grad_values + t * m + (step * m + x), v_, mask=(step < left) & (x < m))
        height = tl.minimum(since, left + 1)
        band = net_pushes(weights, values_, 2 * L - (d - row), L)
        shared = tl.zeros((1, WC), ty)
        end = height
        if FULL:
            shared = untouched_ * tl.sum(net_pushes(weights, values_, d, L), 1)[:, None]
            tl.store(adjoint_stacks + (room - chunks + i) * WC + column, untouched_)
            end = tl.maximum(height, tl.where(since <= left, tl.maximum(used + L, 2 * L), 0))
        for f in range(0, end, 2 * L):
            later = f - L + e
            deep = adjoint_rows(after, tl.where(later >= L, later, -1), column, used, WC)
            u = tl.dot(band, deep, input_precision=PRECISION, out_dtype=ty)
            if f == 0:
                u += tl.dot(tl.load(weights + k * 2 * L + row), y, input_precision=PRECISION, out_dtype=ty)
            tl.store(before + (f + row) * WC + column, u, mask=f + row < height)
            if FULL:
                shared += tl.sum(tl.where(f + row >= since, u, 0.0), 0)[None, :]
        untouched_ = shared
        tl.debug_barrier()
    if FULL and not UNITS:
        tl.store(grad_initial + b * m + x, untouched_, mask=x < m)


@triton.jit(do_not_specialize=["T", "m", "chunks", "room", "tiles"])
def actions_adjoint(
    cotangents, actions, values, lengths, rows, stacks, adjoint_stacks, scratch, gradient,
    T, m, chunks, room, tiles,
    L: tl.constexpr, WC: tl.constexpr, SLOTS: tl.constexpr, FULL: tl.constexpr, UNITS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of the actions, one program a chunk: first that of its operator, then back through its steps.

    ``scratch``: 18 L^2 numbers for each program.
    """
    i, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    t = i * L
    left = length_of(lengths, b, T) - t
    if left > 0:
        rows += (b * chunks + i) * SLOTS * 4 * L * L
        scratch += (b * chunks + i) * 18 * L * L
        _operator_adjoint(
            cotangents + (b * T + t) * m, values + (b * T + t) * m, stacks + b * tiles * room * WC,
            adjoint_stacks + b * tiles * room * WC, scratch, i, left, m, chunks, room, tiles,
            L, WC, FULL, UNITS, PRECISION,
        )  # fmt: skip
        tl.debug_barrier()
        _steps_adjoint(actions + (b * T + t) * 3, rows, scratch, gradient + (b * T + t) * 3, left, L)


@triton.jit
def _operator_adjoint(
    cotangents, values, stacks, adjoint_stacks, scratch, i, left, m, chunks, room, tiles,
    L: tl.constexpr, WC: tl.constexpr, FULL: tl.constexpr, UNITS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The adjoints of ``rows`` (2L, 2L) and ``pushed`` (2L, L), at the start of ``scratch``."""
    ty: tl.constexpr = scratch.dtype.element_ty
    row, k = tl.arange(0, 2 * L)[:, None], tl.arange(0, 2 * L)[None, :]
    step, s = tl.arange(0, L)[:, None], tl.arange(0, L)[None, :]
    e, d, column = tl.arange(0, 4 * L)[:, None], tl.arange(0, 4 * L)[None, :], tl.arange(0, WC)[None, :]
    rows_, pushed_ = tl.zeros((2 * L, 2 * L), ty), tl.zeros((2 * L, L), ty)
    products, shared = tl.zeros((2 * L, 4 * L), ty), tl.zeros((1, WC), ty)
    if UNITS:
        tiles = tl.minimum(tiles, (i + 1) * L // WC + 1)  # the others are zero until later
    for tile in range(0, tiles):
        x = tile * WC + column
        since = (i - first_chunk(tile, L, WC, UNITS)) * L
        stack, adjoint = stacks + tile * room * WC, adjoint_stacks + tile * room * WC
        before, after = stack + boundary(i, chunks, L, True) * WC, adjoint + boundary(i + 1, chunks, L, True) * WC
        used, height = used_rows(since, left, L), tl.minimum(since, left + 1)
        untouched = tl.zeros((1, WC), ty)
        if FULL:
            untouched = tl.load(stack + (room - chunks + i) * WC + column)
            shared += untouched * tl.load(adjoint + (room - chunks + i) * WC + column)
        y = cotangents_of(cotangents, after, row, column, x, i * L, left, used, m, L, WC, UNITS)
        top = stack_rows(before, row, column, height, since, untouched, WC)
        rows_ += tl.dot(y, tl.trans(top), input_precision=PRECISION, out_dtype=ty)
        if UNITS:
            v = tl.where((x == i * L + step + 1) & (x < m), 1.0, 0.0).to(ty)
        else:
            v = tl.load(values + step * m + x, mask=(step < left) & (x < m), other=0.0)
        pushed_ += tl.dot(y, tl.trans(v), input_precision=PRECISION, out_dtype=ty)
        for f in range(L, used, 2 * L):
            u = adjoint_rows(after, f + row, column, used, WC)
            old = stack_rows(before, f - L + e, column, height, since, untouched, WC)
            products += tl.dot(u, tl.trans(old), input_precision=PRECISION, out_dtype=ty)
    pushed_at, products_at = scratch + 8 * L * L, scratch + 10 * L * L
    tl.store(scratch + row * 2 * L + k, rows_)
    tl.store(pushed_at + row * L + s, pushed_)
    tl.store(products_at + row * 4 * L + d, products)
    tl.debug_barrier()
    # The coefficients of ``net_pushes`` are read from row L - 1 after the chunk.
    coefficients = tl.load(products_at + row * 4 * L + row + d, mask=d <= 2 * L, other=0.0)
    coefficients = tl.sum(coefficients, 0) + tl.sum(tl.sum(shared, 1), 0)
    net = tl.arange(0, 4 * L)
    at = tl.where(net == 0, pushed_at + (2 * L - 1) * L, scratch + (2 * L - 1) * 2 * L + net - 1)
    tl.store(at, tl.load(at, mask=net <= 2 * L, other=0.0) + coefficients, mask=net <= 2 * L)


@triton.jit
def _steps_adjoint(actions, rows, scratch, gradient, left, L: tl.constexpr):
    """Back through the steps, from the first: they push the adjoint of ``pushed`` onto a stack, that of ``rows``."""
    size: tl.constexpr = 4 * L * L
    row, k = tl.arange(0, 2 * L)[:, None], tl.arange(0, 2 * L)[None, :]
    pushed_at = scratch + 2 * size
    for s in range(0, tl.minimum(left, L)):
        push, noop, pop = action_of(actions, s, left)
        stack, later = scratch + s % 2 * size, scratch + (s + 1) % 2 * size
        live = row >= s
        above = tl.load(stack + row * 2 * L + k - 1, mask=live & (k > 0), other=0.0)
        above = tl.where(k == 0, tl.load(pushed_at + row * L + s, mask=live, other=0.0), above)
        at = tl.load(stack + row * 2 * L + k, mask=live, other=0.0)
        below = tl.load(stack + row * 2 * L + k + 1, mask=live & (k < 2 * L - 1), other=0.0)
        x = weights_after(rows + (s + 1) * size, row, k, s, L)
        tl.store(gradient + 3 * s, tl.sum(tl.sum(above * x, 1), 0))
        tl.store(gradient + 3 * s + 1, tl.sum(tl.sum(at * x, 1), 0))
        tl.store(gradient + 3 * s + 2, tl.sum(tl.sum(below * x, 1), 0))
        tl.store(later + row * 2 * L + k, push * above + noop * at + pop * below)
        tl.debug_barrier()

"""Superposition stack in Triton, forward, in chunks of L steps; DERIVATION.md, "On a GPU", has the equations.

Legend: T padded length, n <= T steps of a sequence, N chunks, m columns. Rows of a stack are counted from 0, the top.
Chunk i has the steps iL .. iL + L - 1, counted from 0. Of a chunk's operator, row s < L is the reading of step s and
row L + k is row k of the stack after the chunk; column k of ``rows`` is row k of the stack before it, and column s of
``pushed`` the value of step s. A program of ``forward`` and ``adjoints`` has WC columns of one sequence.

UNITS: the stack is the map of stack pointers. Its column 0 is the empty stack, in every row at first, and column j the
unit vector that step j - 1 pushes. Nothing happens in a tile before its first column is pushed: ``first_chunk``.
"""

import triton
import triton.language as tl


@triton.jit
def length_of(lengths, b, T):
    """Steps of a sequence; no length leads out of the tensors."""
    return tl.minimum(tl.maximum(tl.load(lengths + b), 0), T).to(tl.int32)


@triton.jit
def action_of(actions, t, n):
    """Push, no-op and pop of step t; a no-op past the end."""
    at = actions + 3 * t
    push = tl.load(at, mask=t < n, other=0.0)
    return push, tl.load(at + 1, mask=t < n, other=1.0), tl.load(at + 2, mask=t < n, other=0.0)


@triton.jit
def weights_after(after, row, k, s, L: tl.constexpr):
    """Weights of row k of the stack after step s; the reading of step s is row 0 of it."""
    x = tl.load(after + row * 2 * L + k, mask=(row > s) & (k >= 0) & (k < 2 * L), other=0.0)
    return tl.where((row == s) & (k == 0), 1.0, x)


@triton.jit(do_not_specialize=["T", "chunks"])
def operators(actions, lengths, rows, pushed, T, chunks, L: tl.constexpr, SLOTS: tl.constexpr):
    """The operator of each chunk, one program each, from its last step to its first.

    ``rows`` (B, N, SLOTS, 2L, 2L): slot s modulo SLOTS has the weights of the stack before step s, slot 0 in the end
    those of the stack before the chunk. ``pushed`` (B, N, 2L, L).
    """
    i, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    size: tl.constexpr = 4 * L * L
    n = length_of(lengths, b, T)
    actions, rows, pushed = (
        actions + b * T * 3,
        rows + (b * chunks + i) * SLOTS * size,
        pushed + (b * chunks + i) * 2 * L * L,
    )
    row, k, each = tl.arange(0, 2 * L)[:, None], tl.arange(0, 2 * L)[None, :], tl.arange(0, 2 * L)
    tl.store(rows + L % SLOTS * size + row * 2 * L + k, tl.where(row == L + k, 1.0, 0.0))
    tl.debug_barrier()
    for done in range(L):
        s = L - 1 - done
        push, noop, pop = action_of(actions, i * L + s, n)
        after, before = rows + (s + 1) % SLOTS * size, rows + s % SLOTS * size
        first = weights_after(after, each, 0, s, L)
        tl.store(pushed + each * L + s, tl.where(each >= s, push * first, 0.0))
        # A push makes row k of row k + 1, up to the last row that counts: NaN * 0 is not added beyond.
        last = row - s - tl.where(row >= L, 1, 0)
        x = tl.where(k < last, push * weights_after(after, row, k + 1, s, L), 0.0)
        x += noop * weights_after(after, row, k, s, L) + pop * weights_after(after, row, k - 1, s, L)
        tl.store(before + row * 2 * L + k, tl.where(row >= s, x, 0.0))
        tl.debug_barrier()


@triton.jit
def first_chunk(tile, L: tl.constexpr, WC: tl.constexpr, UNITS: tl.constexpr):
    """The chunk before which nothing but zeros is in a tile's columns."""
    return tl.maximum(tile * WC - 1, 0) // L if UNITS else 0


@triton.jit
def boundary(i, chunks, L: tl.constexpr, KEEP: tl.constexpr):
    """The first of the stored rows of the stack before chunk i, of which there are at most L min(i, N + 1 - i).

    Those of all chunks are stored after each other if KEEP, else two in turn.
    """
    if KEEP:
        after = chunks + 1 - i
        position = (chunks + 1) * (chunks + 1) // 4 - after * (after + 1) // 2
        position = tl.where(i <= after, i * (i - 1) // 2, position)
    else:
        position = i % 2 * ((chunks + 1) // 2)
    return position * L


@triton.jit
def untouched_at_first(
    initial, b, x, n, m, FULL: tl.constexpr, UNITS: tl.constexpr, WC: tl.constexpr, ty: tl.constexpr
):
    """What every row is before the first step; the initial row of a sequence without steps is not read."""
    if UNITS:
        return tl.where((x == 0) & (n > 0), 1.0, 0.0).to(ty)
    if FULL:
        return tl.load(initial + b * m + x, mask=x < tl.where(n > 0, m, 0), other=0.0)
    return tl.zeros((1, WC), ty)


@triton.jit
def net_pushes(rows, pushed, d, L: tl.constexpr):
    """The coefficient of L - d net pushes, 0 <= d <= 2L: the weight of row k - L + d in row k >= L after the chunk.

    Row L - 1 after the chunk has them all, that of L pushes for the value of the chunk's first step.
    """
    x = tl.load(rows + (2 * L - 1) * 2 * L + d - 1, mask=(d >= 1) & (d <= 2 * L), other=0.0)
    return tl.where(d == 0, tl.load(pushed + (2 * L - 1) * L), x)


@triton.jit
def stack_rows(stack, row, column, height, since, untouched, WC: tl.constexpr):
    """Rows of a stack before a chunk: ``height`` are stored, and those that no push has reached are ``untouched``."""
    x = tl.load(stack + row * WC + column, mask=(row >= 0) & (row < height), other=0.0)
    return tl.where(row >= since, untouched, x)


@triton.jit(do_not_specialize=["T", "m", "chunks", "room"])
def forward(
    rows, pushed, values, initial, lengths, readings, stacks, T, m, chunks, room,
    L: tl.constexpr, WC: tl.constexpr, SLOTS: tl.constexpr, FULL: tl.constexpr, UNITS: tl.constexpr,
    KEEP: tl.constexpr, READ: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """If READ, readings up to each sequence's length; if KEEP, the stack before each chunk and, after all, z.

    ``stacks``: ``room`` rows for each program. z, the row that no push has reached, has one for each chunk.
    """
    b, tile = tl.program_id(0).to(tl.int64), tl.program_id(1)
    ty: tl.constexpr = stacks.dtype.element_ty
    n = length_of(lengths, b, T)
    stacks += (b * tl.num_programs(1) + tile) * room * WC
    column = tl.arange(0, WC)[None, :]
    x = tile * WC + column
    row, k = tl.arange(0, 2 * L)[:, None], tl.arange(0, 2 * L)[None, :]
    step, s = tl.arange(0, L)[:, None], tl.arange(0, L)[None, :]
    e, d = tl.arange(0, 4 * L)[:, None], tl.arange(0, 4 * L)[None, :]
    untouched = untouched_at_first(initial, b, x, n, m, FULL, UNITS, WC, ty)
    start = first_chunk(tile, L, WC, UNITS)
    values, readings = values + b * T * m, readings + b * T * m
    for i in range(start, (n + L - 1) // L):
        t, since = i * L, (i - start) * L
        left = n - t
        weights, values_ = rows + (b * chunks + i) * SLOTS * 4 * L * L, pushed + (b * chunks + i) * 2 * L * L
        before, after = stacks + boundary(i, chunks, L, KEEP) * WC, stacks + boundary(i + 1, chunks, L, KEEP) * WC
        height = tl.minimum(since, left + 1)
        top = stack_rows(before, row, column, height, since, untouched, WC)
        old = x <= t  # UNITS: what no earlier chunk has pushed is zero, also where the weights are NaN
        if UNITS:
            own = x - 1 - t
            new = tl.load(values_ + row * L + own, mask=(own >= 0) & (own < L), other=0.0)
            y = tl.dot(tl.load(weights + row * 2 * L + k), top, input_precision=PRECISION, out_dtype=ty)
            y = tl.where(old, y, new)
        else:
            v = tl.load(values + t * m + (step * m + x), mask=(step < left) & (x < m), other=0.0)
            y = tl.dot(tl.load(weights + row * 2 * L + k), top, input_precision=PRECISION, out_dtype=ty)
            finite = tl.abs(v) < float("inf")
            broken = tl.min(tl.where(finite, L, step), 0)[None, :]
            v = tl.where(finite, v, 0.0)
            y += tl.dot(tl.load(values_ + row * L + s), v, input_precision=PRECISION, out_dtype=ty)
            y = tl.where((row >= broken) & (broken < L), float("nan"), y)
        if READ:
            tl.store(readings + t * m + (row * m + x), y, mask=(row < L) & (row < left) & (x < m))
        if left > L:
            tl.store(after + (row - L) * WC + column, y, mask=row >= L)
            band = net_pushes(weights, values_, d - row, L)
            for f in range(L, tl.minimum(since + L, left - L + 1), 2 * L):
                rows_ = stack_rows(before, f - L + e, column, height, since, untouched, WC)
                y = tl.dot(band, rows_, input_precision=PRECISION, out_dtype=ty)
                if UNITS:
                    y = tl.where(old, y, 0.0)
                tl.store(after + (f + row) * WC + column, y, mask=f + row < tl.minimum(since + L, left - L + 1))
        if FULL:
            if KEEP:
                tl.store(stacks + (room - chunks + i) * WC + column, untouched)
            product = untouched * tl.sum(net_pushes(weights, values_, d, L), 1)[:, None]
            untouched = tl.where(x == 0, product, 0.0) if UNITS else product
        tl.debug_barrier()

"""The map of stack pointer attention in Triton, forward and backward. Recurrences and adjoints are in DERIVATION.md.

Legend: T padded length, n <= T steps of a sequence, A the map, whose row i is alpha_i, U its adjoint,
D_j(i) = <U[i], A[j - 1]>. The caller's maps begin with row 1, so row r is at offset (r - 1) * (T + 1).

One program for each sequence; the cubic sums go over tiles, J rows by N columns, and every step ends with a barrier,
because it writes a row that the next one reads. Tables are double. Entries beyond the diagonal are masked
by selection, not multiplied by zero.
"""

import triton
import triton.language as tl


@triton.jit
def _action(actions, i):
    """Push, no-op and pop of step i."""
    at = actions + 3 * (i - 1)
    return tl.load(at).to(tl.float64), tl.load(at + 1).to(tl.float64), tl.load(at + 2).to(tl.float64)


@triton.jit
def _uncovered(A, before, i, first, stride, J: tl.constexpr, N: tl.constexpr):
    """Columns first .. first + N - 1 of sum_{1 <= j < i} A[i-1][j] A[j-1], the greater part of (22)."""
    column = first + tl.arange(0, N)[None, :]
    sums = tl.zeros((J, N), tl.float64)
    for start in range(first + 1, i, J):
        j = start + tl.arange(0, J)[:, None]
        real = (j < i) & (column < j)
        weight = tl.load(before + j, mask=j < i, other=0.0)
        sums += tl.where(real, weight * tl.load(A + (j - 1) * stride + column, mask=real, other=0.0), 0.0)
    return tl.sum(sums, 0)


@triton.jit(do_not_specialize=["T"])
def forward(actions, lengths, maps, scratch, T, J: tl.constexpr, N: tl.constexpr):
    """Rows 1 .. n of the map, equations (19) to (23). ``scratch``: a table of T + 1 rows for each sequence."""
    b = tl.program_id(0).to(tl.int64)
    stride = T + 1
    A, actions, maps = scratch + b * stride * stride, actions + b * T * 3, maps + b * T * stride
    n = tl.minimum(tl.maximum(tl.load(lengths + b), 0), T).to(tl.int32)  # no length leads out of the tensors
    tl.store(A, 1.0)
    tl.debug_barrier()
    for i in range(1, n + 1):
        push, noop, pop = _action(actions, i)
        before, row = A + (i - 1) * stride, maps + (i - 1) * stride
        for first in range(0, i, N):
            column = first + tl.arange(0, N)
            at = tl.load(before + column, mask=column < i, other=0.0)
            popped = _uncovered(A, before, i, first, stride, J, N) + tl.where(column == 0, at, 0.0)
            x = noop * at + pop * popped
            tl.store(A + i * stride + column, x, mask=column < i)
            tl.store(row + column, x, mask=column < i)
        tl.store(A + i * stride + i, push)
        tl.store(row + i, push)
        tl.debug_barrier()


@triton.jit
def _passed_down(U, actions, maps, i, n, first, stride, J: tl.constexpr, N: tl.constexpr):
    """Of U[i], what the pops of the steps r >= i + 2 that uncover A[i] give: sum_r pop_r A[r-1][i+1] U[r]."""
    column = first + tl.arange(0, N)[None, :]
    sums = tl.zeros((J, N), tl.float64)
    for start in range(i + 2, n + 1, J):
        r = start + tl.arange(0, J)[:, None]
        pop = tl.load(actions + 3 * (r - 1) + 2, mask=r <= n, other=0.0).to(tl.float64)
        weight = tl.load(maps + (r - 2) * stride + i + 1, mask=r <= n, other=0.0).to(tl.float64)
        real = (r <= n) & (column <= i)
        sums += tl.where(real, pop * weight * tl.load(U + r * stride + column, mask=real, other=0.0), 0.0)
    return tl.sum(sums, 0)


@triton.jit
def _products(U_row, maps, i, first, stride, J: tl.constexpr, N: tl.constexpr):
    """D_j(i) for j = first .. first + J - 1, where D_0(i) = U[i][0]."""
    j = first + tl.arange(0, J)[:, None]
    sums = tl.zeros((J, N), tl.float64)
    for start in range(0, tl.minimum(first + J, i) - 1, N):
        column = start + tl.arange(0, N)[None, :]
        real = (column < j) & (j < i)
        older = tl.load(maps + (j - 2) * stride + column, mask=real & (j >= 2), other=1.0).to(tl.float64)  # A[0] = e_0
        sums += tl.where(real, older * tl.load(U_row + column, mask=column < i, other=0.0), 0.0)
    return tl.where(first + tl.arange(0, J) == 0, tl.load(U_row), tl.sum(sums, 1))


@triton.jit(do_not_specialize=["T"])
def backward(cotangents, actions, maps, lengths, gradient, scratch, T, J: tl.constexpr, N: tl.constexpr):
    """The gradient of the actions. ``scratch``: a table of T + 1 rows, and a row for D, for each sequence."""
    b = tl.program_id(0).to(tl.int64)
    stride = T + 1
    U = scratch + b * (stride + 1) * stride
    D = U + stride * stride
    cotangents, maps = cotangents + b * T * stride, maps + b * T * stride
    actions, gradient = actions + b * T * 3, gradient + b * T * 3
    n = tl.minimum(tl.maximum(tl.load(lengths + b), 0), T).to(tl.int32)  # no length leads out of the tensors
    for back in range(0, n):
        i = n - back
        for first in range(0, i + 1, N):
            column = first + tl.arange(0, N)
            x = tl.load(cotangents + (i - 1) * stride + column, mask=column <= i, other=0.0).to(tl.float64)
            if i < n:
                _, noop, pop = _action(actions, i + 1)
                x += noop * tl.load(U + (i + 1) * stride + column, mask=column <= i, other=0.0)
                x += pop * tl.load(D + column, mask=column <= i, other=0.0)
            x += _passed_down(U, actions, maps, i, n, first, stride, J, N)
            tl.store(U + i * stride + column, x, mask=column <= i)
        tl.debug_barrier()
        noop_, pop_ = tl.zeros((J,), tl.float64), tl.zeros((J,), tl.float64)
        for first in range(0, i, J):
            j = first + tl.arange(0, J)
            d = _products(U + i * stride, maps, i, first, stride, J, N)
            tl.store(D + j, d, mask=j < i)
            last = tl.where(i > 1, i, 0)  # A[0] = e_0 is not in ``maps``
            before = tl.load(maps + (i - 2) * stride + j, mask=j < last, other=0.0).to(tl.float64)
            before = tl.where(j < tl.where(i > 1, 0, 1), 1.0, before)
            noop_ += tl.where(j < i, tl.load(U + i * stride + j, mask=j < i, other=0.0) * before, 0.0)
            pop_ += tl.where(j < i, d * before, 0.0)
        at = gradient + 3 * (i - 1)
        tl.store(at, tl.load(U + i * stride + i))
        tl.store(at + 1, tl.sum(noop_, 0))
        tl.store(at + 2, tl.sum(pop_, 0))
        tl.debug_barrier()

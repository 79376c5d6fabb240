"""Superposition stack in Triton, forward and backward. The recurrences and their adjoints are in DERIVATION.md.

Legend: T padded length, n <= T steps of a sequence, m size of a vector, V the stack, U its adjoint, W the width of a
tile of columns, h(t) = min(t, n + 1 - t) the rows of V after step t that may differ from zero and that a reading sees.

One program for each sequence and tile of columns. Rows run along the lanes, ROWS at a time; since row i needs its
neighbours, a stack is written to memory and read by the next step, after a barrier. Row i of a stack is at i * W;
row 0 is unused. Rows that no vector has reached are not stored: V_t[i] = z_t for i > t. All arithmetic is in double.
"""

import triton
import triton.language as tl


@triton.jit
def _action(actions, t):
    """Push, no-op and pop of step t."""
    at = actions + 3 * (t - 1)
    return tl.load(at).to(tl.float64), tl.load(at + 1).to(tl.float64), tl.load(at + 2).to(tl.float64)


@triton.jit
def _row_of(rows, t, column, m):
    """Row t of (T, m), t counted from 1; zeros past the last column."""
    return tl.load(rows + (t - 1) * m + column, mask=column < m, other=0.0).to(tl.float64)


@triton.jit
def _stack_rows(stack, row, column, t, last, value, untouched, W: tl.constexpr):
    """V_t[row]: ``value`` for row 0, which is pushed next, and z_t for rows beyond t; no row after ``last`` is read."""
    stored = (row >= 1) & (row <= t) & (row <= last)
    x = tl.load(stack + row * W + column, mask=stored, other=0.0)
    return tl.where(row > t, untouched, tl.where(row == 0, value, x))


@triton.jit
def _advance(before, after, readings, actions, values, t, n, untouched, column, m, W: tl.constexpr, ROWS: tl.constexpr):
    """V_t from V_{t-1}, equations (5) to (8), and the reading, unless ``readings`` is None."""
    push, noop, pop = _action(actions, t)
    value = _row_of(values, t, column, m)
    height = tl.minimum(t, n + 1 - t)
    for first in range(1, height + 1, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        above = _stack_rows(before, row - 1, column, t - 1, height, value, untouched, W)
        at = _stack_rows(before, row, column, t - 1, height, value, untouched, W)
        below = _stack_rows(before, row + 1, column, t - 1, height + 1, value, untouched, W)
        x = push * above + noop * at + pop * below
        tl.store(after + row * W + column, x, mask=row <= height)
        if readings is not None:
            tl.store(readings + (t - 1) * m + column + 0 * row, x, mask=(row == 1) & (column < m))
    tl.debug_barrier()


@triton.jit
def _untouched_after(untouched, actions, t, FULL: tl.constexpr):
    """z_t from z_{t-1}; a stack that is empty at first keeps its zeros whatever the actions are."""
    if FULL:
        push, noop, pop = _action(actions, t)
        untouched = (push + noop + pop) * untouched
    return untouched


@triton.jit
def _untouched_at_first(initial, b, column, n, m, W: tl.constexpr, FULL: tl.constexpr):
    """z_0; the initial row of a sequence without steps is not read."""
    untouched = tl.zeros((1, W), tl.float64)
    if FULL:
        untouched = tl.load(initial + b * m + column, mask=column < tl.where(n > 0, m, 0), other=0.0).to(tl.float64)
    return untouched


@triton.jit(do_not_specialize=["T", "m"])
def forward(
    actions, values, lengths, initial, readings, scratch, T, m,
    W: tl.constexpr, ROWS: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """Readings up to each sequence's length. ``scratch``: two stacks for each program."""
    b = tl.program_id(0).to(tl.int64)
    size = ((T + 1) // 2 + 1) * W
    stacks = scratch + (b * tl.num_programs(1) + tl.program_id(1)) * 2 * size
    column = tl.arange(0, W)[None, :]
    first = tl.program_id(1) * W
    n = tl.minimum(tl.maximum(tl.load(lengths + b), 0), T).to(tl.int32)  # no length leads out of the tensors
    actions, values, readings = actions + b * T * 3, values + b * T * m, readings + b * T * m
    untouched = _untouched_at_first(initial, b, first + column, n, m, W, FULL)
    for t in range(1, n + 1):
        before, after = stacks + (t - 1) % 2 * size, stacks + t % 2 * size
        # Where a stack is stored, columns are counted from the tile's first one.
        _advance(before - first, after - first, readings, actions, values, t, n, untouched, first + column, m, W, ROWS)
        untouched = _untouched_after(untouched, actions, t, FULL)


@triton.jit
def _adjoint_rows(adjoint, row, column, t, n, cotangent, W: tl.constexpr):
    """U_t[row], with the reading's cotangent; zeros above the first row and below row h(t)."""
    last = tl.where(t < n, tl.minimum(t, n + 1 - t), 0)
    later = tl.load(adjoint + row * W + column, mask=(row >= 1) & (row <= last), other=0.0)
    return later + tl.where(row == 1, cotangent, 0.0)


@triton.jit
def _retreat(
    before, adjoint, earlier, grad_values, actions, values, cotangent, t, n, untouched, column, m,
    W: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """U_{t-1} from U_t, the gradient of the value, and the tile's share of the three of the action."""
    push, noop, pop = _action(actions, t)
    value = _row_of(values, t, column, m)
    height = tl.minimum(t, n + 1 - t)
    highest = tl.maximum(height, tl.minimum(t - 1, n + 2 - t))
    push_, noop_, pop_ = (
        tl.zeros((ROWS, W), tl.float64),
        tl.zeros((ROWS, W), tl.float64),
        tl.zeros((ROWS, W), tl.float64),
    )
    for first in range(1, highest + 1, ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        u = _adjoint_rows(adjoint, row, column, t, n, cotangent, W)
        real = row <= height
        push_ += tl.where(real, u * _stack_rows(before, row - 1, column, t - 1, height, value, untouched, W), 0.0)
        noop_ += tl.where(real, u * _stack_rows(before, row, column, t - 1, height, value, untouched, W), 0.0)
        pop_ += tl.where(real, u * _stack_rows(before, row + 1, column, t - 1, height + 1, value, untouched, W), 0.0)
        above = _adjoint_rows(adjoint, row - 1, column, t, n, cotangent, W)
        below = _adjoint_rows(adjoint, row + 1, column, t, n, cotangent, W)
        tl.store(earlier + row * W + column, pop * above + noop * u + push * below, mask=row <= highest)
        tl.store(grad_values + (t - 1) * m + column + 0 * row, push * u, mask=(row == 1) & (column < m))
    return tl.sum(tl.sum(push_, 1), 0), tl.sum(tl.sum(noop_, 1), 0), tl.sum(tl.sum(pop_, 1), 0)


@triton.jit
def _untouched_adjoint(untouched_, adjoint, actions, cotangent, t, n, column, W: tl.constexpr):
    """The adjoint of z_{t-1} from that of z_t, on which depend z_t and, by rows t and t + 1, two rows of V_t."""
    push, noop, pop = _action(actions, t)
    row = tl.full((1, 1), t, tl.int32)
    last = _adjoint_rows(adjoint, row, column, t, n, cotangent, W)
    above = _adjoint_rows(adjoint, row - 1, column, t, n, cotangent, W)
    return (push + noop + pop) * untouched_ + (noop + pop) * last + pop * above


@triton.jit(do_not_specialize=["T", "m", "block", "blocks"])
def backward(
    cotangents, actions, values, lengths, initial, products, grad_values, grad_initial, scratch, T, m, block, blocks,
    W: tl.constexpr, ROWS: tl.constexpr, FULL: tl.constexpr,
):  # fmt: skip
    """The gradients of values and of the initial row, and each tile's share of the actions' in ``products``.

    The stacks are computed again: first those at the start of each block of ``block`` steps, then, block by block from
    the last one, those inside. ``scratch``: for each program, two stacks in turn, two adjoints in turn, ``blocks``
    stacks at the start of blocks, ``block`` stacks of one block, and z_0 .. z_T.
    """
    b = tl.program_id(0).to(tl.int64)
    program = b * tl.num_programs(1) + tl.program_id(1)
    size = ((T + 1) // 2 + 1) * W
    first = tl.program_id(1) * W
    column = first + tl.arange(0, W)[None, :]
    # Where a stack is stored, columns are counted from the tile's first one.
    turns = scratch + program * ((4 + blocks + block) * size + (T + 1) * W) - first
    adjoints, starts, inside = turns + 2 * size, turns + 4 * size, turns + (4 + blocks) * size
    zs = inside + block * size
    n = tl.minimum(tl.maximum(tl.load(lengths + b), 0), T).to(tl.int32)  # no length leads out of the tensors
    actions, products = actions + b * T * 3, products + program * T * 3
    cotangents, values, grad_values = cotangents + b * T * m, values + b * T * m, grad_values + b * T * m

    untouched = _untouched_at_first(initial, b, column, n, m, W, FULL)
    tl.store(zs + column, untouched)
    for t in range(1, n + 1):
        before, after = turns + (t - 1) % 2 * size, turns + t % 2 * size
        before = tl.where((t - 1) % block == 0, starts + (t - 1) // block * size, before)
        after = tl.where(t % block == 0, starts + t // block * size, after)
        if t <= (n - 1) // block * block:
            _advance(before, after, None, actions, values, t, n, untouched, column, m, W, ROWS)
        untouched = _untouched_after(untouched, actions, t, FULL)
        tl.store(zs + t * W + column, untouched)
    tl.debug_barrier()

    untouched_ = tl.zeros((1, W), tl.float64)
    for done in range(0, (n + block - 1) // block):
        start = ((n - 1) // block - done) * block
        for t in range(start + 1, tl.minimum(start + block, n)):
            before = tl.where(t == start + 1, starts + start // block * size, inside + (t - 1 - start) * size)
            untouched = tl.load(zs + (t - 1) * W + column)
            _advance(before, inside + (t - start) * size, None, actions, values, t, n, untouched, column, m, W, ROWS)
        for back in range(0, tl.minimum(block, n - start)):
            t = tl.minimum(start + block, n) - back
            before = tl.where(t == start + 1, starts + start // block * size, inside + (t - 1 - start) * size)
            adjoint, earlier = adjoints + t % 2 * size, adjoints + (t - 1) % 2 * size
            cotangent = _row_of(cotangents, t, column, m)
            untouched = tl.load(zs + (t - 1) * W + column)
            push_, noop_, pop_ = _retreat(
                before, adjoint, earlier, grad_values, actions, values, cotangent, t, n, untouched, column, m, W, ROWS
            )
            if FULL:
                if t - 1 <= n + 2 - t:  # the rows behind the last of V_{t-1} are read
                    shared = tl.sum(tl.sum(untouched_ * untouched, 1), 0)
                    push_, noop_, pop_ = push_ + shared, noop_ + shared, pop_ + shared
                    untouched_ = _untouched_adjoint(untouched_, adjoint, actions, cotangent, t, n, column, W)
            at = products + 3 * (t - 1)
            tl.store(at, push_)
            tl.store(at + 1, noop_)
            tl.store(at + 2, pop_)
            tl.debug_barrier()
    if FULL:
        tl.store(grad_initial + b * m + column, untouched_, mask=column < m)

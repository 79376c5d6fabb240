"""One step of superposition stacks in Triton: equations (5) to (8) for a whole batch in one launch."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "next_rows", "m"])
def step(
    stack, action, value, result, rows, next_rows, m, BLOCK: tl.constexpr, ENDLESS: tl.constexpr, DOUBLE: tl.constexpr
):
    """The next (B, next_rows, m) from (B, rows, m), whose last row represents all below it if ENDLESS, else zero."""
    b = tl.program_id(1).to(tl.int64)
    ty: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, column = at // m, at % m
    here = row < next_rows
    stack, result = stack + b * rows * m, result + b * next_rows * m
    push = tl.load(action + 3 * b).to(ty)
    noop = tl.load(action + 3 * b + 1).to(ty)
    pop = tl.load(action + 3 * b + 2).to(ty)
    pushed = tl.load(value + b * m + column, mask=here & (row == 0), other=0.0).to(ty)
    above = tl.load(stack + at - m, mask=here & (row > 0), other=0.0).to(ty)
    same, below = row, row + 1
    if ENDLESS:
        same, below = tl.minimum(same, rows - 1), tl.minimum(below, rows - 1)
    kept = tl.load(stack + same * m + column, mask=here & (same < rows), other=0.0).to(ty)
    uncovered = tl.load(stack + below * m + column, mask=here & (below < rows), other=0.0).to(ty)
    tl.store(result + at, push * tl.where(row == 0, pushed, above) + noop * kept + pop * uncovered, mask=here)

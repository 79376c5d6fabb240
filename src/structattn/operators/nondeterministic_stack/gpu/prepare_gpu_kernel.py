"""Provisional weights of prefixes, and the transitions scaled by them; legend in tiles.py.

Logits come with axes (state, symbol); everything else is symbol-first.
"""

import triton
import triton.language as tl

INFINITY = tl.constexpr(float("inf"))
SEGMENT = tl.constexpr(16)  # steps from a uniform share: chains of 16 steps, whatever T is
LOG_FLOOR = tl.constexpr(-13.815510557964274)  # log 1e-6, of the sum that is added to every provisional weight
MOST_POPS = tl.constexpr(9.0)  # log of the largest weight of pops relative to the other actions


@triton.jit
def finite(scale):
    """Return the scale, with -inf (no transitions) replaced by 0, since -inf - -inf is NaN."""
    return tl.where(scale == -INFINITY, 0.0, scale)


@triton.jit
def log_sum(x, axis: tl.constexpr):
    """Return log Σ exp x along an axis; -inf where all are."""
    top = finite(tl.max(x, axis))
    sums = tl.sum(tl.exp(x - tl.expand_dims(top, axis)), axis)
    return tl.where(sums == 0, -INFINITY, top + tl.log(tl.where(sums == 0, 1.0, sums)))


@triton.jit
def log_add(x, y):
    """Return log (exp x + exp y)."""
    top = finite(tl.maximum(x, y))
    sums = tl.exp(x - top) + tl.exp(y - top)
    return tl.where(sums == 0, -INFINITY, top + tl.log(tl.where(sums == 0, 1.0, sums)))


@triton.jit
def state_first(c, Q: tl.constexpr, S: tl.constexpr):
    """Return where configuration c = zQ + s stands among the logits, sS + z."""
    return c % Q * S + c // Q


@triton.jit(do_not_specialize=["T"])
def mean_field(
    push, replace, pop, lengths, log_p, totals, T,
    Q: tl.constexpr, S: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Compute log p of one segment relative to its start, as if every symbol were equally likely below the top.

    In floats: p may be any positive numbers, as long as they are the same everywhere.
    """
    C: tl.constexpr = Q * S
    segment, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n = tl.load(lengths + b)
    push, replace, pop = push + b * T * C * C, replace + b * T * C * C, pop + b * T * C * Q
    i = tl.arange(0, CP)
    c, d = i[:, None], i[None, :]
    real = (c < C) & (d < C)
    at = state_first(c, Q, S) * C + state_first(d, Q, S)
    at_pop = state_first(c, Q, S) * Q + d % Q
    before = tl.where(i < C, -tl.log(i * 0.0 + C), -INFINITY)
    for t in range(segment * SEGMENT + 1, tl.minimum((segment + 1) * SEGMENT, n) + 1):
        share = before[:, None]
        pushes = share + tl.load(push + (t - 1) * C * C + at, mask=real, other=-INFINITY)
        stays = share + tl.load(replace + (t - 1) * C * C + at, mask=real, other=-INFINITY)
        pops = share + tl.load(pop + (t - 1) * C * Q + at_pop, mask=real, other=-INFINITY)
        stay = log_add(log_sum(pushes.to(tl.float32), 0), log_sum(stays.to(tl.float32), 0))
        popped = log_sum(pops.to(tl.float32), 0) - tl.log(i * 0.0 + S)
        popped -= tl.maximum(finite(log_sum(popped, 0)) - finite(log_sum(stay, 0)) - MOST_POPS, 0.0)
        p = log_add(stay, popped)
        before = tl.where(i < C, log_add(p, log_sum(p, 0) + LOG_FLOOR), -INFINITY)
        tl.store(log_p + (b * (T + 1) + t) * C + i, before.to(tl.float64), mask=i < C)
    tl.store(totals + b * tl.num_programs(0) + segment, log_sum(before, 0).to(tl.float64))


@triton.jit
def _log_p(relative, totals, row, t, c, T, C: tl.constexpr, RELATIVE: tl.constexpr):
    """Return log p_t[c]: as given, or that of its segment plus the totals of earlier segments, from the first on."""
    x = tl.load(relative + row * C + c, mask=c < C, other=0.0)
    if RELATIVE:
        segments = (T + SEGMENT - 1) // SEGMENT
        b = row // (T + 1)
        for s in range((t + SEGMENT - 1) // SEGMENT - 1):
            x += tl.load(totals + b * segments + s)
        x = tl.where(t > 0, x, tl.where(c == 0, 0.0, LOG_FLOOR))
    return x


@triton.jit(do_not_specialize=["T"])
def scale(
    push, replace, pop, lengths, relative, totals, log_p, log_g, pi, rho, pops, factor, T,
    Q: tl.constexpr, S: tl.constexpr, CP: tl.constexpr, RELATIVE: tl.constexpr,
):  # fmt: skip
    """Compute log p, log g, π, ρ, the pops and f of step t; ``relative`` holds log p itself unless ``RELATIVE``."""
    C: tl.constexpr = Q * S
    t, b = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n = tl.load(lengths + b)
    row = b * (T + 1) + t
    i = tl.arange(0, CP)
    c, d = i[:, None], i[None, :]
    here = _log_p(relative, totals, row, t, d, T, C, RELATIVE)
    tl.store(log_p + row * C + d, here, mask=d < C)
    if t == 0:
        tl.store(log_g + row, tl.zeros((), tl.float64))
        tl.store(factor + row * C + d, tl.zeros((1, CP), factor.dtype.element_ty), mask=d < C)
    else:
        last = _log_p(relative, totals, row - 1, t - 1, c, T, C, RELATIVE)
        within, real = (c < C) & (d < C), (c < tl.where(t <= n, C, 0)) & (d < C)
        step, from_c, to_d = b * T + t - 1, state_first(c, Q, S), state_first(d, Q, S)
        shift = last - here
        x = tl.load(push + step * C * C + from_c * C + to_d, mask=real, other=-INFINITY).to(tl.float64) + shift
        tl.store(pi + step * C * C + c * C + d, tl.where(real, tl.exp(x), 0.0).to(pi.dtype.element_ty), mask=within)
        x = tl.load(replace + step * C * C + from_c * C + to_d, mask=real, other=-INFINITY).to(tl.float64) + shift
        tl.store(rho + step * C * C + c * C + d, tl.where(real, tl.exp(x), 0.0).to(rho.dtype.element_ty), mask=within)
        poppable = (c < tl.where((t <= n) & (t > 1), C, 0)) & (d < Q)  # the bottom is never popped
        x = tl.load(pop + step * C * Q + from_c * Q + d, mask=poppable, other=-INFINITY).to(tl.float64) + last
        x = tl.where(poppable, x, -INFINITY)
        g = finite(tl.max(tl.max(x, 1), 0))
        tl.store(log_g + row, g)
        tl.store(pops + step * C * Q + c * Q + d, tl.exp(x - g).to(pops.dtype.element_ty), mask=(c < C) & (d < Q))
        x = tl.where(d < tl.where(t <= n, C, 0), tl.exp(g - here), 0.0)
        tl.store(factor + row * C + d, x.to(factor.dtype.element_ty), mask=d < C)

"""Tables in tiles conditioned on the prefix, and the bound of what they and the provisional ones lost; see tiles.py.

DERIVATION.md, "Range": a number below the smallest share s is lost. Of all runs up to any step, the tables lose at most

    Σ over tiles  (lost numbers of P^ and w^) s max_j b_j max_t max(g_t, max_c p_t[c]) / Σ α_t  B_t
                + (lost numbers of R and W) s max_t B_t

where B_t is at least what a configuration of time t can weigh later, relative to all runs.
"""

import triton
import triton.language as tl

from structattn.operators.nondeterministic_stack.gpu.tiles_gpu_kernel import tile_at

INFINITY = tl.constexpr(float("inf"))
LARGEST_GROWTH = tl.constexpr(1e6)  # of a step's log-weight: beyond, doubles round differences of logits too coarsely
LARGEST_REGROWTH = tl.constexpr(1e300)


@triton.jit
def _step(grown, growth, reach, b, t, T, real, at, CP: tl.constexpr):
    """Return a step's weights of stays and of pops, relative to the growth, log of the growth, and the time's reach."""
    before = b * T + t - 1
    there = real & (at < tl.where(t > 0, 2 * CP * CP, 0))
    stays = tl.load(grown + before * 2 * CP * CP + at, mask=there, other=0.0)
    pops = tl.load(grown + before * 2 * CP * CP + at + CP, mask=there, other=0.0)
    return stays, pops, tl.load(growth + before, mask=t > 0, other=0.0), tl.load(reach + before + b + 1, mask=t > 0)


@triton.jit(do_not_specialize=["T"])
def regrowth(
    grown, growth, lengths, most, reach, failed, T,
    Q: tl.constexpr, S: tl.constexpr, CP: tl.constexpr,
):  # fmt: skip
    """Compute, for every time, max_c B_t[c], and the same times max(g_t, max_c p_t[c]) / Σ α_t.

    B_n[c] = 1 and B_{t-1}[c] = max(1, Σ_d (Push_t + Repl_t)[c→d] B_t[d] / G_t + Σ_r Pop_t[c→r] max_y B_t[r,y] / G_t)
    with G_t = Σ α_t / Σ α_{t-1}. ``failed`` is set where a step has no run or a number is not finite.
    """
    C: tl.constexpr = Q * S
    b = tl.program_id(0).to(tl.int64)
    n = tl.load(lengths + b)
    i = tl.arange(0, CP)
    c, d = i[:, None], i[None, :]
    at, real = c * 2 * CP + d, (c < C) & (d < C)
    reached, bad = tl.where(i < C, 1.0, 0.0).to(tl.float64), tl.load(failed + b)
    stays, pops, step_growth, scale = _step(grown, growth, reach, b, n, T, real, at, CP)
    for back in range(n):
        t = n - back
        next_step = _step(grown, growth, reach, b, t - 1, T, real, at, CP)
        largest = tl.max(reached, 0)
        tl.store(most + b * (T + 1) + t, largest)
        tl.store(reach + b * (T + 1) + t, largest * scale)
        top = tl.max(tl.where((c % Q == d) & (c < C), reached[:, None], 0.0), 0)  # over y, for each r
        x = tl.sum(stays * reached[None, :] + pops * top[None, :], 1)
        bad = tl.where((tl.abs(step_growth) <= LARGEST_GROWTH) & (scale < INFINITY), bad, 1)
        bad = tl.where(tl.sum(tl.where(x < LARGEST_REGROWTH, 0, 1), 0) == 0, bad, 1)
        reached = tl.where(i < C, tl.where(x > 1.0, x, 1.0), 0.0)
        stays, pops, step_growth, scale = next_step
    tl.store(failed + b, bad)


@triton.jit
def _lost(x, reached, smallest):
    """Return how many numbers of a table are lost, and infinity if one is not finite."""
    lost = tl.sum(tl.sum(tl.where(reached & ~(x >= smallest), 1.0, 0.0), 1), 0)
    return tl.where(tl.sum(tl.sum(tl.where(tl.abs(x) < INFINITY, 0, 1), 1), 0) == 0, lost, INFINITY)


@triton.jit(do_not_specialize=["nb", "tiles", "T", "D"])
def condition(
    P, w, lengths, b_, ratio, most, reach, loss, nb, tiles, T, D,
    Q: tl.constexpr, S: tl.constexpr, NP: tl.constexpr, SMALLEST: tl.constexpr,
):  # fmt: skip
    """Turn one symbol's tile of P^ and w^ into R = P^ b_j g / g' and W = w^ b_k / b_t, in place; compute its loss."""
    C: tl.constexpr = Q * S
    NB: tl.constexpr = NP // Q
    J, d, b = tl.program_id(0), tl.program_id(1) // S, tl.program_id(2).to(tl.int64)
    I, z = J + d, tl.program_id(1) % S
    n = tl.load(lengths + b)
    if (I < nb) & (I * NB <= n):  # tiles past the length are zero
        i = tl.arange(0, NP)
        j, t = J * NB + i // Q, I * NB + i // Q
        from_, to = (i < NB * Q) & (j <= n), (i < NB * Q) & (t <= n)
        b_ += b * (T + 1) * C
        times = b * (T + 1) + t
        pops = tl.load(ratio + times, mask=to, other=0.0)[None, :]
        longest = tl.max(tl.load(most + times, mask=to & (t > 0), other=0.0), 0)
        farthest = tl.max(tl.load(reach + times, mask=to & (t > 0), other=0.0), 0)
        span = t[None, :] - j[:, None]
        rows = tl.load(b_ + j * C + z * Q + i % Q, mask=from_, other=0.0)
        columns = tl.load(b_ + t * C + z * Q + i % Q, mask=to, other=0.0)
        columns = tl.where(columns == 0, 0.0, 1.0 / tl.where(columns == 0, 1.0, columns))[None, :]
        alive = from_[:, None] & to[None, :] & (rows > 0)[:, None]
        in_P = alive & (span >= 1) & (span <= D) & (j[:, None] >= 1)
        in_w = alive & (span >= 2) & (span <= D + 1)
        at = ((b * tiles + tile_at(J, I)) * S + z) * NP * NP + i[:, None] * NP + i[None, :]
        x = tl.load(P + at)
        lost = _lost(x, in_P, SMALLEST)
        x = (x * rows[:, None] * pops).to(P.dtype.element_ty)
        lost_shares = _lost(x, in_P, SMALLEST)
        tl.store(P + at, x)
        x = tl.load(w + at)
        lost += _lost(x, in_w, SMALLEST)
        x = (x * rows[:, None] * columns).to(w.dtype.element_ty)
        lost_shares += _lost(x, in_w & (columns > 0), SMALLEST)
        tl.store(w + at, x)
        bound = lost.to(tl.float64) * tl.max(rows, 0) * farthest + lost_shares.to(tl.float64) * longest
        tl.store(loss + (b * tiles + tile_at(J, I)) * S + z, bound * SMALLEST)

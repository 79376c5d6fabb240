"""The tables in tiles by plain operations of torch, in float64: what the kernels are tested against.

Row j of all tables follows from later rows, for all t at once (legend in tiles.py):

    (a) P^[j,t]        = [t = j+1] pop_t + ρ_{j+1} P^[j+1,t] + Σ_{k=j+2..t-1} Σ_u w^[j,k][(s,z),u] P^[k,t][(u,z),r]
    (b) w^[k,t][(u,y),r] = f_t[y,r] Σ_d π_{k+1}[(u,y)→d] P^[k+1,t][d,r]
    (c) b_t[d]         = Σ_c (π_t + ρ_t)[c→d] b_{t-1}[c] + Σ_{k,u} w^[k,t][(u,y),r] b_k[(u,y)]                d = (r,y)
        x_t[d]         = Σ_c π_t[c→d] b_{t-1}[c] v_t + ρ_t[c→d] x_{t-1}[c] + Σ_{k,u} w^[k,t][(u,y),r] x_k[(u,y)]

for any p; then α = p b and E = x / b.
"""

import torch
from torch import Tensor

from structattn.operators.common.checks import inside
from structattn.operators.nondeterministic_stack.arguments import Arguments
from structattn.operators.nondeterministic_stack.gpu.tiles import Provisional, Shares, Tiling

SEGMENT = 16  # steps from a uniform share
FLOOR = 1e-6  # of the sum, added to every provisional weight
MOST_POPS = 9.0  # log of the largest weight of pops relative to the other actions


def symbol_first(given: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    """Return push and replace (B,T,C,C) and pop (B,T,C,Q) in float64, 0 past the lengths."""
    B, T, Q, S = given.push.shape[:4]
    here = inside(given.lengths, T).view(B, T, 1, 1)
    stays = [x.double().permute(0, 1, 3, 2, 5, 4).reshape(B, T, Q * S, Q * S) for x in (given.push, given.replace)]
    pop = given.pop.double().transpose(2, 3).reshape(B, T, Q * S, Q)
    return tuple(torch.where(here, x, 0) for x in (*stays, pop))  # type: ignore[return-value]


def _without_nan(scale: Tensor) -> Tensor:
    return torch.where(scale == -torch.inf, 0, scale)


def mean_field(push: Tensor, replace: Tensor, pop: Tensor, symbols: int) -> Tensor:
    """Return log p (B,T+1,C): α as if every symbol were equally likely below the top, in segments of 16 steps."""
    B, T, C, _ = push.shape
    floor = torch.tensor(FLOOR).double().log()
    log_p = push.new_empty(B, T + 1, C)
    log_p[:, 0] = floor
    log_p[:, 0, 0] = 0
    offset = push.new_zeros(B)
    for t in range(1, T + 1):
        if t % SEGMENT == 1:
            before = push.new_full((B, C, 1), -float(torch.tensor(C).double().log()))
            if t > 1:
                offset = log_p[:, t - 1].logsumexp(1)
        stays = torch.cat([before + push[:, t - 1], before + replace[:, t - 1]], 1).logsumexp(1)
        pops = (before + pop[:, t - 1]).logsumexp(1)
        excess = pops.logsumexp(1) - (stays.logsumexp(1) + MOST_POPS)
        pops = pops - _without_nan(excess).clamp_min(0)[:, None] - torch.tensor(symbols).double().log()
        total = torch.logaddexp(stays, pops.repeat(1, symbols))
        total = torch.logaddexp(total, (total.logsumexp(1) + floor)[:, None])
        log_p[:, t] = total + offset[:, None]
        before = total[..., None]
    return log_p


def _scaled(logits: tuple[Tensor, Tensor, Tensor], log_p: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    """Return log g, and π, ρ, the pops and f as in `Provisional`; configurations with log p = -inf are unreachable."""
    push, replace, pop = logits
    B, T = push.shape[:2]
    here = inside(lengths, T).view(B, T, 1, 1)
    before, after = log_p[:, :-1, :, None], _without_nan(log_p)[:, 1:, None, :]
    alive = here & (log_p[:, 1:, None, :] > -torch.inf)
    pops = before + pop
    pops[:, :1] = -torch.inf  # the bottom is never popped
    log_g = torch.cat([pop.new_zeros(B, 1), _without_nan(pops.amax((2, 3)))], 1)
    stays = [torch.where(alive, (x + before - after).exp(), 0) for x in (push, replace)]
    scaled_pop = torch.where(here, (pops - log_g[:, 1:, None, None]).exp(), 0)
    factor = torch.where(log_p > -torch.inf, (log_g[..., None] - _without_nan(log_p)).exp(), 0)
    factor[:, 0] = 0
    factor[:, 1:][~here[..., 0].expand_as(factor[:, 1:])] = 0
    return log_g, *stays, scaled_pop, factor


def _cells(
    push: Tensor, replace: Tensor, pop: Tensor, factor: Tensor, lengths: Tensor, window: int, Q: int
) -> tuple[Tensor, Tensor]:
    """Return P^ and w^ by (a) and (b), (B, T+1, S, Q, T+1, Q) with axes j, z, s, t, r."""
    B, T, C, _ = push.shape
    S = C // Q
    times = torch.arange(T + 1)
    P = push.new_zeros(B, T + 1, S, Q, T + 1, Q)
    w = torch.zeros_like(P)
    f = factor.view(B, T + 1, S, Q).transpose(1, 2)
    for j in reversed(range(T)):
        after = P[:, j + 1].reshape(B, C, -1)
        real = ((times >= j + 2) & (times - j - 1 <= window) & (times <= lengths[:, None])).view(B, 1, 1, T + 1, 1)
        w[:, j] = torch.where(real, (push[:, j] @ after).view(B, S, Q, T + 1, Q) * f[:, :, None], 0)
        if j == 0:
            break
        row = (replace[:, j] @ after).view(B, S, Q, T + 1, Q)
        row += torch.einsum("bzsku,bkzutr->bzstr", w[:, j], P)
        row[:, :, :, j + 1] += pop[:, j].view(B, S, Q, Q)
        real = ((times >= j + 1) & (times - j <= window) & (times <= lengths[:, None])).view(B, 1, 1, T + 1, 1)
        P[:, j] = torch.where(real, row, 0)
    return P, w


def packed(cells: Tensor, tiling: Tiling) -> Tensor:
    """Return a table (B, tiles, S, NP, NP) of cells (B, T+1, S, Q, T+1, Q)."""
    B, times, S, Q = cells.shape[:4]
    NB, nb, real = tiling.block, tiling.blocks, tiling.block * tiling.states
    whole = cells.new_zeros(B, nb * NB, S, Q, nb * NB, Q)
    whole[:, :times, :, :, :times] = cells
    blocks = whole.view(B, nb, NB, S, Q, nb, NB, Q).permute(0, 1, 5, 3, 2, 4, 6, 7).reshape(B, nb, nb, S, real, real)
    table = cells.new_zeros(tiling.table)
    for row in range(nb):
        for column in range(row, nb):
            table[:, column * (column + 1) // 2 + row, :, :real, :real] = blocks[:, row, column]
    return table


def provisional_tables(given: Arguments, tiling: Tiling, log_p: Tensor | None = None) -> Provisional:
    """Return the tables scaled by p, which is the mean field's if None."""
    logits = symbol_first(given)
    log_p = mean_field(*logits, tiling.symbols) if log_p is None else log_p
    log_g, push, replace, pop, factor = _scaled(logits, log_p, given.lengths)
    P, w = _cells(push, replace, pop, factor, given.lengths, tiling.window, tiling.states)
    return Provisional(log_p, log_g, push, replace, pop, factor, packed(P, tiling), packed(w, tiling))


def corrections(given: Arguments, tables: Provisional, tiling: Tiling) -> Tensor:
    """Return (b, x) by (c), (B, T+1, C, 1+m)."""
    B, T, Q, S = given.push.shape[:4]
    values, bottom = vectors(given)
    x = values.new_zeros(B, T + 1, Q * S, 1 + values.shape[2])
    x[:, 0, 0] = torch.cat([bottom.new_ones(1), bottom])
    pushed = torch.cat([values.new_ones(B, T, 1), values], 2)
    w = unpacked(tables.w, tiling)
    for t in range(1, T + 1):
        before, item = x[:, t - 1], pushed[:, t - 1, None]
        x[:, t] = torch.einsum("bcd,bcm->bdm", tables.replace[:, t - 1], before)
        x[:, t] += torch.einsum("bcd,bc->bd", tables.push[:, t - 1], before[..., 0])[..., None] * item
        x[:, t] += torch.einsum("bkyur,bkyum->byrm", w[:, :, :, :, t], x.view(B, T + 1, S, Q, -1)).flatten(1, 2)
    return x


def vectors(given: Arguments) -> tuple[Tensor, Tensor]:
    """Return pushed vectors and bottom vector in float64; unit vectors if weights over positions are computed."""
    if given.values is not None and given.bottom is not None:
        here = inside(given.lengths, given.values.shape[1])[..., None]
        return torch.where(here, given.values, 0).double(), given.bottom.double()
    B, T = given.push.shape[:2]
    units = torch.eye(T + 1).double()
    return units[1:].expand(B, T, T + 1), units[0]


def unpacked(table: Tensor, tiling: Tiling) -> Tensor:
    """Return the cells (B, T+1, S, Q, T+1, Q) of a table."""
    B, Q, S = tiling.batch, tiling.states, tiling.symbols
    NB, nb, real = tiling.block, tiling.blocks, tiling.block * tiling.states
    blocks = table.new_zeros(B, nb, nb, S, real, real)
    for row in range(nb):
        for column in range(row, nb):
            blocks[:, row, column] = table[:, column * (column + 1) // 2 + row, :, :real, :real]
    cells = blocks.view(B, nb, nb, S, NB, Q, NB, Q).permute(0, 1, 4, 3, 5, 2, 6, 7)
    times = tiling.time + 1
    return cells.reshape(B, nb * NB, S, Q, nb * NB, Q)[:, :times, :, :, :times]


def readings_of(given: Arguments, log_p: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return readings (B,T,Q,S,m) and log-weights (B,T) from log p and (b, x), 0 past the lengths."""
    B, T, Q, S = given.push.shape[:4]
    here = inside(given.lengths, T)
    log_weight = (log_p + x[..., 0].log()).logsumexp(2)[:, 1:]
    readings = (log_p[:, 1:] - _without_nan(log_weight)[..., None]).exp()[..., None] * x[:, 1:, :, 1:]
    readings = torch.where(here[..., None, None], readings, 0).view(B, T, S, Q, -1).transpose(2, 3)
    return readings, torch.where(here, log_weight, 0)


def shares(given: Arguments, tiling: Tiling, log_p: Tensor, x: Tensor) -> Shares:
    """Return the conditioned tables by (a) and (b) with p = α as found."""
    T = tiling.time
    within = torch.arange(T + 1) <= given.lengths[:, None]
    log_alpha = torch.where(within[..., None], log_p + x[..., 0].log(), -torch.inf)
    tables = provisional_tables(given, tiling, log_alpha)
    total = _without_nan(log_alpha.logsumexp(2, keepdim=True))
    a = (log_alpha - total).exp()
    b = torch.where(x[..., :1] > 0, x[..., :1], 1)
    E = torch.where(log_alpha[..., None] > -torch.inf, x[..., 1:] / b, 0)
    lengths = given.lengths.int()
    return Shares(lengths, tables.push, tables.replace, tables.factor, tables.P, tables.w, a, E)


def tiles_of(tiling: Tiling, length: int) -> list[int]:
    """Indices of the tiles within the window and the length: the others are not written."""
    pairs = [(row, row + d) for d in range(tiling.diagonals) for row in range(tiling.blocks - d)]
    return [column * (column + 1) // 2 + row for row, column in pairs if column * tiling.block <= length]

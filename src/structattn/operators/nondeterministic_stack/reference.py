"""The definition: the recurrences of DuSell & Chiang (2024), Appendix B, in log space, one step of time after another.

Legend: B batch, n length, Q states, S stack symbols, m the size of a vector. ``gamma[i -> t][q, x -> r, y]`` is the
    weight of going from state q with x on top at time i to state r with y on top at time t, where x stays untouched and
    y is what was pushed right above it; ``zeta`` is the same with every run weighted by its top vector. A table here
    holds both: entry 0 of the last axis is gamma, the others are zeta (gamma is zeta for vectors that are 1).
    ``alpha[t][r, y]`` is the weight of all runs that end at time t in r with y on top, ``eta`` the same weighted by the
    top vector; they share a table too. Time -1 is the fictitious moment that pushes the bottom item. Everything is a
    logarithm.
"""

from collections.abc import Callable

import torch
from einops import rearrange
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Sum = Callable[[Tensor, tuple[int, ...]], Tensor]


def log_sum(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Log Σ exp over ``dims``; a sum whose terms are all -inf is -inf and has gradient zero."""
    top = x.detach().amax(dims, keepdim=True)
    top = torch.where(top.isfinite(), top, torch.zeros_like(top))
    total = (x - top).exp().sum(dims, keepdim=True)
    empty = total == 0
    result = torch.where(empty, torch.ones_like(total), total).log() + top
    return torch.where(empty, torch.full_like(result, -torch.inf), result).squeeze(dims)


def largest(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The sum of the (max, +) semiring: the largest over ``dims``; its gradient goes to one of the largest alone."""
    kept = [d for d in range(x.dim()) if d not in dims]
    return x.permute(*kept, *dims).flatten(len(kept)).max(-1).values


def _reached_by_pop(sum_: Sum, columns: tuple[Tensor, ...], pop: Tensor) -> Tensor:
    """The third term of (24) and (26), with (25); over i = -1 .. t-3, shape (B, t-1, Q, S, Q, S, 1+m).

    ``columns`` are those of times k = 0 .. t-1, each over i = -1 .. k-1.
    """
    *past, last = columns
    popped = sum_(
        rearrange(last[:, 1:, ..., 0], "b k u y s z -> b k u y s z 1") + rearrange(pop, "b s z r -> b 1 1 1 s z r"),
        (4, 5),
    )
    padded = [torch.cat([c, c.new_full((len(c), len(past) - c.shape[1], *c.shape[2:]), -torch.inf)], 1) for c in past]
    terms = rearrange(torch.stack(padded, 2), "b i k q x u y m -> b i k q x u y 1 m")
    return rearrange(
        sum_(terms + rearrange(popped, "b k u y r -> b 1 k 1 1 u y r 1"), (2, 5)), "b i q x y r m -> b i q x r y m"
    )


def _next_column(sum_: Sum, columns: list[Tensor], push: Tensor, replace: Tensor, pop: Tensor, value: Tensor) -> Tensor:
    """(24) and (26) for one t: over i = -1 .. t-1, shape (B, t+1, Q, S, Q, S, 1+m)."""
    last = rearrange(columns[-1], "b i q x s z m -> b i q x s z 1 1 m")
    column = sum_(last + rearrange(replace, "b s z r y -> b 1 1 1 s z r y 1"), (4, 5))
    if len(columns) > 1:
        # The terms of this sum fill most of the memory; they are computed again on the way back.
        popped = checkpoint(_reached_by_pop, sum_, tuple(columns), pop, use_reentrant=False)
        column = torch.cat([sum_(torch.stack([column[:, :-1], popped]), (0,)), column[:, -1:]], 1)
    pushed = push[..., None] + rearrange(value, "b m -> b 1 1 1 1 m")
    return torch.cat([column, pushed[:, None]], 1)


def _prefixes(sum_: Sum, push: Tensor, replace: Tensor, pop: Tensor, values: Tensor, bottom: Tensor) -> Tensor:
    """(27) and (28): alpha and eta at times 1 .. n, shape (B, n, Q, S, 1+m); ``values``, ``bottom`` are logarithms."""
    B, n, Q, S = push.shape[:4]
    one = values.new_zeros(B, n, 1)
    values, bottom = torch.cat([one, values], -1), torch.cat([one.new_zeros(B, 1), bottom], -1)
    start = push.new_full((B, Q, S), -torch.inf).index_put(
        (torch.arange(B), torch.tensor(0), torch.tensor(0)), push.new_tensor(0.0)
    )
    transition = start[:, :, :, None, None] + start[:, None, None]  # -inf but for (0, 0 -> 0, 0)
    columns = [(transition[..., None] + rearrange(bottom, "b m -> b 1 1 1 1 m"))[:, None]]
    alphas = [start, start]
    totals = []
    for t in range(n):
        columns.append(_next_column(sum_, columns, push[:, t], replace[:, t], pop[:, t], values[:, t]))
        before = rearrange(torch.stack(alphas, 1), "b i q x -> b i q x 1 1 1")
        totals.append(sum_(before + columns[-1], (1, 2, 3)))
        alphas.append(totals[-1][..., 0])
    return torch.stack(totals, 1)


def readings_and_log_weight(
    push: Tensor, replace: Tensor, pop: Tensor, values: Tensor, bottom: Tensor
) -> tuple[Tensor, Tensor]:
    """The readings (29), (B,n,Q,S,m), and the log-weight of all runs up to each step, (B,n).

    The published semiring knows positive vectors only. A reading is linear in the vectors, and for vectors that are 1
    it is alpha's share, so negative ones are moved up by a constant, and its share taken off again.

    Cost: n³·Q³S²·(1+m) in time, n²·Q²S²·(1+m) in memory.
    """
    lowest = torch.minimum(values.detach().nan_to_num().amin(1), bottom.detach().nan_to_num()) - 1
    totals = _prefixes(log_sum, push, replace, pop, (values - lowest[:, None]).log(), (bottom - lowest).log())
    weight = log_sum(totals[..., 0], (2, 3))
    dead = weight == -torch.inf
    share = (totals - torch.where(dead, torch.zeros_like(weight), weight)[..., None, None, None]).exp()
    readings = share[..., 1:] + share[..., :1] * lowest[:, None, None, None]
    return torch.where(dead[..., None, None, None], torch.zeros_like(readings), readings), weight


def best_log_weight(push: Tensor, replace: Tensor, pop: Tensor) -> Tensor:
    """The log-weight of the heaviest run up to each step, (B,n); its gradient marks the run's transitions."""
    nothing = push.new_zeros(*push.shape[:2], 0)
    return _prefixes(largest, push, replace, pop, nothing, nothing[:, 0])[..., 0].flatten(2).max(-1).values

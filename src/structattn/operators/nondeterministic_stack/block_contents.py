"""What lies on a nondeterministic stack, in float64, by products of matrices.

Legend: n steps; Q states, S symbols, C = Q S configurations, here with the symbol first: c = (y, q). a_t[c] is the
share of the runs up to step t that end in c, and g_t the growth of their total weight in step t. Given that c ends step
t, the last action was, with the probabilities

    π_t[c, e]      a push on e,
    ρ_t[c, e]      a replacement in e,
    W_t[c, k, e]   a pop that uncovered the stack of time k, which ended in e, whose symbol is that of c.

So what is known of the stacks of earlier times yields that of time t:

    X_t = π_t X'_{t-1} + ρ_t X_{t-1} + Σ_k W_t[k] X_k,

where X' is what X becomes by a push. DERIVATION.md, "Contents", has the equations.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from structattn.operators.nondeterministic_stack import nondeterministic_stack_weights

# The guard of DERIVATION.md, "Range": what is lost below the one grows to at most e^600 times the total.
_SMALLEST_SHARE, _LARGEST_REGROWTH, _LARGEST_GROWTH = 1e-290, 600.0, 1e6
_BLOCK = 64  # times whose products are joined

Row = Callable[[int, Tensor, Tensor], None]


@dataclass(frozen=True)
class SequenceContents:
    """What lies on the stack of one sequence after each step, up to the first one at which nothing is allowed.

    Args:
        height: the expected height, (n).
        positions: the probability that the vector of step j lies at each depth, (n, D, n + 1).
        symbols: that of each symbol, (n, D, S).
    """

    height: Tensor
    positions: Tensor
    symbols: Tensor


@dataclass(frozen=True)
class _Actions:
    """The laws of the last action, given the configuration that ends the step; row t belongs to time t, from 0 on.

    Args:
        shares: a, (n + 1, C).
        growth: log g, (n + 1).
        push: π, (n + 1, C, C).
        replace: ρ, (n + 1, C, C).
        pop: Pop_t[d → r] a_{t-1}[d], divided by a scale, (n + 1, Q, C) for r and d.
        per_pop: the scale divided by the weight of (y, r), (n + 1, Q, S, 1) for r and y.
        uncovered: W, (S, n + 1, Q, n + 1, Q) for the symbol, t, the state of c, k, the state of e; filled block by
            block.
        window: as for `nondeterministic_stack`.
    """

    shares: Tensor
    growth: Tensor
    push: Tensor
    replace: Tensor
    pop: Tensor
    per_pop: Tensor
    uncovered: Tensor
    window: int

    @property
    def num_times(self) -> int:
        """The number of times, n + 1."""
        return len(self.shares)

    @property
    def sizes(self) -> tuple[int, int]:
        """S and Q."""
        return self.uncovered.shape[0], self.uncovered.shape[2]


def block_contents(
    push: Tensor, replace: Tensor, pop: Tensor, window: int | None, depths: int
) -> SequenceContents | None:
    """Return the contents of the stack of one sequence; None where the range of doubles may not suffice.

    Args:
        push: logits, (n, Q, S, Q, S), float64 without NaN and +inf.
        replace: as push.
        pop: (n, Q, S, Q).
        window: at a pop, the number of steps since the push is at most this; None: no limit.
        depths: D.

    Cost: n³/6 · Q²S · (C + D) multiply-adds, and n² · (Q²S + QS + D) numbers.
    """
    actions = _actions(push, replace, pop, max(1, len(push)) if window is None else window)
    if bool((actions.growth.abs() > _LARGEST_GROWTH).any()):
        return None
    count = actions.num_times
    positions = push.new_zeros(count, depths, count)
    smallest = actions.shares.amin(1)
    for first in reversed(range(0, count, _BLOCK)):
        found = _push_times(actions, first, min(first + _BLOCK, count), depths, positions)
        smallest = torch.minimum(smallest, found)
    if not _in_range(smallest, actions.growth, push, replace, pop):
        return None
    height, symbols = _symbols(actions, depths)
    return SequenceContents(height[1:], positions[1:], symbols[1:])


def _actions(push: Tensor, replace: Tensor, pop: Tensor, window: int) -> _Actions:
    """Compute the laws that follow from the weights of the readings."""
    tops = _tops(push, replace, pop, window)
    count, size, _ = tops.shape
    time, (states, symbols) = count - 1, push.shape[1:3]
    shares = tops.sum(2)
    pushed, replaced = (_symbol_first(x[:time]) + shares[:-1].log()[:, :, None] for x in (push, replace))
    popped = pop[:time].transpose(1, 2).flatten(1, 2)  # (t, d, r)
    times = torch.arange(count, device=tops.device)
    oldest = (times[1:, None] - window).clamp(min=1)  # the bottom is never popped
    removable = tops[:-1].masked_fill((times < oldest)[:, None], 0).sum(2).log()[:, :, None]
    by_pop = popped + removable
    growth = torch.cat([x.flatten(1) for x in (pushed, replaced, by_pop)], 1).logsumexp(1)
    given = (shares[1:].log() + growth[:, None])[:, None]  # log α_t, (t, 1, c)
    given = torch.where(given == -torch.inf, 0, given)
    scale = by_pop.amax((1, 2))
    scale = torch.where(scale.isfinite(), scale, 0)[:, None, None]
    weights = torch.where(removable == -torch.inf, 0, (popped + shares[:-1].log()[:, :, None] - scale).exp())
    per_pop = (scale - given).exp().view(time, symbols, states, 1).transpose(1, 2)
    laws = [(x - given).exp().transpose(1, 2) for x in (pushed, replaced)]
    first = push.new_zeros(1, size, size)
    return _Actions(
        shares=shares,
        growth=torch.cat([growth.new_zeros(1), growth]),
        push=torch.cat([first, laws[0]]),
        replace=torch.cat([first, laws[1]]),
        pop=torch.cat([push.new_zeros(1, states, size), weights.transpose(1, 2)]),
        per_pop=torch.cat([push.new_zeros(1, states, symbols, 1), per_pop]),
        uncovered=push.new_zeros(symbols, count, states, count, states),
        window=window,
    )


def _tops(push: Tensor, replace: Tensor, pop: Tensor, window: int) -> Tensor:
    """Return the share of the runs up to time t that end in c with the vector of step j on top, (n + 1, C, n + 1)."""
    weights = nondeterministic_stack_weights(push[None], replace[None], pop[None], window=window)[0]
    time = int((weights.sum((1, 2, 3)) > 0).long().cumprod(0).sum())
    states, symbols = push.shape[1:3]
    tops = push.new_zeros(time + 1, states * symbols, time + 1)
    tops[1:] = weights[:time, :, :, : time + 1].transpose(1, 2).flatten(1, 2)
    tops[0, 0, 0] = 1
    return tops


def _symbol_first(x: Tensor) -> Tensor:
    """Return (n, C, C) of (n, Q, S, Q, S)."""
    return x.permute(0, 2, 1, 4, 3).flatten(3).flatten(1, 2)


def _push_times(actions: _Actions, first: int, stop: int, depths: int, positions: Tensor) -> Tensor:
    """Fill the positions ``first`` to ``stop`` - 1, and the pops of what was pushed then; later ones must be filled.

    Returns:
        The smallest of the numbers from which they are computed, for each time.
    """
    (symbols, states), count, size = actions.sizes, actions.num_times, actions.shares.shape[1]
    width = stop - first
    at_depths, oldest = depths * width, max(first, 1)
    x = actions.shares.new_zeros(symbols, count, states, width * (depths + size))  # depths, j; then j, e of the top
    top_items = x[..., at_depths:].view(symbols, count, states, width, size)

    def write(t: int, before: Tensor, row: Tensor) -> None:
        if (newest := min(stop, t)) > oldest:
            found = (actions.pop[t] @ before[:, at_depths:]).view(states, width, symbols, states)
            found = found[:, oldest - first : newest - first] * actions.per_pop[t, :, None]
            found[:, : max(t - actions.window - oldest, 0)] = 0
            actions.uncovered[:, t, :, oldest - 1 : newest - 1] = found.permute(2, 0, 1, 3)
        row[..., width:at_depths] += (actions.push[t] @ before[:, : at_depths - width]).view(symbols, states, -1)
        if t < stop:
            row[..., t - first] = actions.push[t].sum(1).view(symbols, states)
            top_items[:, t, :, t - first] = actions.push[t].view(symbols, states, size)

    if first == 0:
        x[0, 0, 0, 0] = top_items[0, 0, 0, 0, 0] = 1
    _fill(actions, x, first, stop - 1, write)
    by_depth = x[..., :at_depths].transpose(0, 1).flatten(1, 2)  # (t, c, ...)
    positions[:, :, first:stop] = (actions.shares[:, None] @ by_depth).view(count, depths, width)
    return _smallest(top_items, first)


def _smallest(top_items: Tensor, first: int) -> Tensor:
    """Return the smallest number for each time; before its push, and below one at time 0, there is no item."""
    found = top_items.amin((0, 2, 4))  # (t, j)
    if first == 0:
        found[:, :2] = top_items[:, :, :, :2, 0].amin((0, 2))
    times, pushed = (torch.arange(size, device=found.device) for size in found.shape)
    return found.masked_fill(pushed + first > times[:, None], torch.inf).amin(1)


def _fill(actions: _Actions, x: Tensor, first: int, known: int, write: Row) -> None:
    """Fill the rows of x, (S, n + 1, Q, numbers), from time ``first`` on; those before are zero.

    Args:
        actions: whose pops that uncover times from ``known`` on are filled.
        x: the row of time 0 is filled.
        first: a time.
        known: a time.
        write: given t, row t - 1 as (C, numbers) and row t as (S, Q, numbers), to which all but the replacements and
            pops is to be added; it fills the pops of step t that uncover times from ``first`` to ``known`` - 1.
    """
    count = actions.num_times
    for begin in range(first, count, _BLOCK):
        end = min(begin + _BLOCK, count)
        if begin > known:
            x[:, begin:end] = _popped(actions, x, begin, end, known, begin)
        for t in range(max(begin, 1), end):
            before, row = x[:, t - 1].flatten(0, 1), x[:, t]
            row += (actions.replace[t] @ before).view_as(row)
            write(t, before, row)
            for start, stop in ((first, min(known, t)), (max(begin, known, first), t)):
                if start < stop:
                    row += _popped(actions, x, t, t + 1, start, stop)[:, 0]


def _popped(actions: _Actions, x: Tensor, begin: int, end: int, start: int, stop: int) -> Tensor:
    """Return Σ_k W_t[k] X_k, (S, t, Q, numbers), for the times t and k in two ranges."""
    pops = actions.uncovered[:, begin:end, :, start:stop].flatten(3).flatten(1, 2)
    symbols, states = actions.sizes
    return torch.bmm(pops, x[:, start:stop].flatten(1, 2)).view(symbols, end - begin, states, -1)


def _symbols(actions: _Actions, depths: int) -> tuple[Tensor, Tensor]:
    """Return the expected height, (n + 1), and the law of the symbol at each depth, (n + 1, D, S)."""
    (symbols, states), count = actions.sizes, actions.num_times
    x = actions.shares.new_zeros(symbols, count, states, 1 + (depths - 1) * symbols)  # height; symbols from depth 2 on
    x[0, 0, 0, 0] = 1
    own = torch.eye(symbols, dtype=x.dtype, device=x.device).repeat_interleave(states, 0)

    def write(t: int, before: Tensor, row: Tensor) -> None:
        below = torch.cat([before[:, :1] + 1, own, before[:, 1:]], 1)[:, : before.shape[1]]
        row += (actions.push[t] @ below).view_as(row)

    _fill(actions, x, 0, 0, write)
    rows = x.transpose(0, 1).flatten(1, 2)
    found = (actions.shares[:, None] @ rows)[:, 0]
    tops = actions.shares.view(count, symbols, states).sum(2)
    return found[:, 0], torch.cat([tops, found[:, 1:]], 1).view(count, depths, symbols)


def _in_range(smallest: Tensor, growth: Tensor, push: Tensor, replace: Tensor, pop: Tensor) -> bool:
    """Return whether no number that was lost below the smallest share can have mattered."""
    lost = -math.inf
    totals = _largest_totals(push, replace, pop)
    for t in range(1, len(smallest)):
        if not smallest[t] >= _SMALLEST_SHARE:
            lost = max(lost, 0.0)
        if lost > -math.inf:
            lost += float(totals[t - 1] - growth[t])
        if lost >= _LARGEST_REGROWTH:
            return False
    return True


def _largest_totals(push: Tensor, replace: Tensor, pop: Tensor) -> Tensor:
    """Return the log of the largest total weight of the actions of a configuration in each step, (n)."""
    logits = [x.flatten(3).flatten(1, 2) for x in (push, replace, pop)]
    logits[2] = logits[2].clone()
    logits[2][:1] = -torch.inf
    return torch.cat(logits, 2).logsumexp(2).amax(1)

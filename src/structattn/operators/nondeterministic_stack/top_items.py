"""Which item is on top of a nondeterministic stack, and on which configuration it was pushed.

Legend: a configuration c or e is (state, symbol), C = Q S of them. α_t[c] is the weight of all runs up to step t that
end in c, a_t its share, and γ[i → t][e → c] as in `reference.py`. The probability, given that c ends step t, that the
item on top was pushed at step j, on configuration e, is

    G_t[c | j, e] = α_{j-1}[e] γ[j-1 → t][e → c] / α_t[c],

with j = 0 for the bottom item and e = (0, 0), where time -1 is the fictitious one that pushes it. DERIVATION.md,
"Contents", has the recurrences.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from structattn.operators.nondeterministic_stack import reference

# The guard of DERIVATION.md, "Range": what is lost below the one grows to at most e^600 times the total.
_SMALLEST_SHARE, _LARGEST_REGROWTH, _LARGEST_GROWTH = 1e-290, 600.0, 1e6


@dataclass(frozen=True)
class TopItems:
    """The laws of the top items of one sequence, up to the first step at which nothing is allowed.

    Args:
        shares: a, (n + 1, C), for the times 0 .. n; a_0 is 1 for configuration 0.
        tops: G, with the symbol of c first: (S, n + 1, Q, n + 1, C) for symbol and time of c, its state, j and e.
    """

    shares: Tensor
    tops: Tensor

    @property
    def num_steps(self) -> int:
        """The number of steps n."""
        return len(self.shares) - 1

    def of(self, configurations: Tensor) -> Tensor:
        """Return the law of the top item, (rows, m, C) over j and e, of laws of configurations at times 0 .. m - 1.

        Args:
            configurations: probabilities (rows, m, C) of time and configuration.
        """
        rows, times, count = configurations.shape
        symbols, _, states, *_ = self.tops.shape
        by_symbol = configurations.view(rows, times, states, symbols).permute(3, 0, 1, 2).flatten(2)
        found = configurations.new_zeros(rows, times * count)
        for chosen, tops in zip(by_symbol, self.tops, strict=True):
            found += chosen @ tops[:times, :, :times].reshape(times * states, times * count)
        return found.view(rows, times, count)


def defined_top_items(push: Tensor, replace: Tensor, pop: Tensor, window: int | None) -> TopItems:
    """Compute G from the published recurrences in log space.

    Cost: n³·Q³S² in time, n²·Q²S² in memory.
    """
    time, states, symbols = push.shape[:3]
    columns, alphas = reference.first_columns(push.new_zeros(1, 1), states, symbols)
    for t in range(time):
        *past, last = columns
        sides = reference.side_by_side(past, last.shape[1])
        popped = reference.reached_by_pop(reference.log_sum, sides, last, pop[t][None], window)
        one = push.new_zeros(1, 1)
        columns.append(reference.next_column(reference.log_sum, last, popped, push[t][None], replace[t][None], one))
        alphas.append(reference.prefixes(reference.log_sum, torch.stack(alphas, 1), columns[-1])[..., 0])
        if not alphas[-1].isfinite().any():
            break
    return _from_logarithms(torch.stack(alphas[3:], 1)[0], torch.stack(alphas[2:], 1)[0], columns[2:])


def _from_logarithms(alphas: Tensor, before: Tensor, columns: list[Tensor]) -> TopItems:
    """Divide by α; ``alphas`` are those of times 0 .. n, ``before`` those of -1 .. n."""
    live = [t for t, alpha in enumerate(alphas) if alpha.isfinite().any()]
    count, (states, symbols) = len(live), alphas.shape[1:]
    tops = alphas.new_zeros(count, states, symbols, count, states * symbols)
    for t in live:
        joint = before[: t + 1, :, :, None, None] + columns[t][0, 2:, ..., 0]  # (j, q, x, r, y)
        possible = alphas[t].isfinite()
        given = (joint - torch.where(possible, alphas[t], 0)).exp() * possible
        tops[t, :, :, : t + 1] = given.permute(3, 4, 0, 1, 2).flatten(3)
    shares = alphas[:count].flatten(1).softmax(1)
    return TopItems(shares, tops.permute(2, 0, 1, 3, 4).contiguous())


class _Recurrence:
    """The tables of one sequence of n steps, filled step by step.

    Raises:
        _OutOfRangeError: by ``step``; doubles may have lost too much.
    """

    def __init__(self, push: Tensor, replace: Tensor, pop: Tensor, window: int | None) -> None:
        self.time, self.states, self.symbols = push.shape[:3]
        self.logits = push.flatten(3).flatten(1, 2), replace.flatten(3).flatten(1, 2), pop.flatten(1, 2)
        self.window = self.time if window is None else window
        count = self.states * self.symbols
        self.shares = push.new_zeros(self.time + 1, count)
        self.tops = push.new_zeros(self.symbols, self.time + 1, self.states, self.time + 1, count)
        self.shares[0, 0] = self.tops[0, 0, 0, 0, 0] = 1
        self.lost = -math.inf

    def step(self, t: int) -> bool:
        """Fill in time t; False if no run goes on."""
        push, replace, pop = (x[t - 1] + self.shares[t - 1].log()[:, None] for x in self.logits)
        if t == 1:
            pop = torch.full_like(pop, -torch.inf)
        uncovered, scale = self._uncovered(t, pop)
        by_pop = uncovered.sum(0).view(self.states, self.symbols, self.states).sum(0).T.flatten()  # over r, y
        logs = torch.stack([push.logsumexp(0), replace.logsumexp(0), by_pop.log() + scale])
        alpha = logs.logsumexp(0)
        growth = alpha.logsumexp(0)
        if growth == -torch.inf:
            return False
        self.shares[t] = (alpha - growth).exp()
        given = torch.where(alpha == -torch.inf, 0, alpha)
        self._write(t, (push - given).exp(), (replace - given).exp(), uncovered, (scale - given).exp())
        self._guard(t, float(growth))
        return True

    def _uncovered(self, t: int, pop: Tensor) -> tuple[Tensor, Tensor]:
        """Return D_t[k][c, r], (t, C, Q), divided by the exponential of a scale, and the scale."""
        scale = pop.amax()
        scale = torch.where(scale.isfinite(), scale, 0)
        weights = (pop - scale).exp().view(self.states, self.symbols, self.states).transpose(0, 1)  # (y, q, r)
        tops = self.tops[:, t - 1, :, 1 : t + 1]  # (y, q, j, e), j = 1 .. t
        uncovered = torch.einsum("yqje,yqr->jer", tops, weights)
        uncovered[: max(t - self.window, 1) - 1] = 0
        return uncovered, scale

    def _write(self, t: int, push: Tensor, replace: Tensor, uncovered: Tensor, per_pop: Tensor) -> None:
        """Write G_t: the top item was pushed, replaced, or uncovered by a pop."""
        count = self.states * self.symbols
        replaced = torch.einsum("yqc,yqje->cje", self._by_symbol(replace), self.tops[:, t - 1, :, : t + 1])
        popped = uncovered.view(t, self.states, self.symbols, self.states)  # (k, u, y, r)
        popped = popped * per_pop.view(self.states, self.symbols).T[None, None]
        for y in range(self.symbols):
            rows = popped[:, :, y].flatten(0, 1).T  # (r, (k, u))
            kept = rows @ self.tops[y, :t, :, : t + 1].reshape(t * self.states, (t + 1) * count)
            row = self.tops[y, t]
            row[:, : t + 1] = replaced[y :: self.symbols] + kept.view(self.states, t + 1, count)
            row[:, t] = push.T[y :: self.symbols]

    def _by_symbol(self, x: Tensor) -> Tensor:
        """Split the first axis, over configurations, into symbols and states."""
        return x.view(self.states, self.symbols, -1).transpose(0, 1)

    def _guard(self, t: int, growth: float) -> None:
        if abs(growth) > _LARGEST_GROWTH:
            raise _OutOfRangeError
        if self.lost > -math.inf:
            totals = torch.cat([x[t - 1] for x in (self.logits if t > 1 else self.logits[:2])], 1).logsumexp(1)
            self.lost += float(totals.amax()) - growth
        row = self.tops[:, t, :, : t + 1]
        written = row[:, :, 2:], row[:, :, :2, 0], self.shares[t]  # at times -1 and 0 there is one configuration
        if min(float(x.amin()) for x in written if x.numel()) < _SMALLEST_SHARE:
            self.lost = max(self.lost, 0.0)
        if self.lost >= _LARGEST_REGROWTH:
            raise _OutOfRangeError


class _OutOfRangeError(Exception):
    """The weights of a sequence may have left the range of doubles."""


def top_items(push: Tensor, replace: Tensor, pop: Tensor, window: int | None) -> TopItems | None:
    """Compute G in float64, or return None where the range of doubles may not suffice.

    Args:
        push: logits of one sequence, (n, Q, S, Q, S), float64 without NaN and +inf.
        replace: as push.
        pop: (n, Q, S, Q).
        window: at a pop, the number of steps since the push is at most this; None: no limit.

    Cost: n³/6 · Q³S² multiply-adds, n²·Q²S² numbers.
    """
    found, live = _Recurrence(push, replace, pop, window), 0
    try:
        while live < found.time and found.step(live + 1):
            live += 1
    except _OutOfRangeError:
        return None
    return TopItems(found.shares[: live + 1], found.tops[:, : live + 1, :, : live + 1])

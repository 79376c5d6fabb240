"""Which item is on top of a nondeterministic stack, and on which configuration it was pushed.

Legend: a configuration c or e is (state, symbol), C = Q S of them. α_t[c] is the weight of all runs up to step t that
end in c, a_t its share, and γ[i → t][e → c] as in `reference.py`. The probability, given that c ends step t, that the
item on top was pushed at step j, on configuration e, is

    G_t[c | j, e] = α_{j-1}[e] γ[j-1 → t][e → c] / α_t[c],

with j = 0 for the bottom item and e = (0, 0), where time -1 is the fictitious one that pushes it. DERIVATION.md,
"Contents", has the recurrences.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from structattn.operators.nondeterministic_stack import reference


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

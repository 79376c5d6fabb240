"""What lies on a nondeterministic stack at each depth: DERIVATION.md, "Contents".

Legend: a configuration c or e is (state, symbol), C = Q S of them. α_t[c] is the weight of all runs up to step t that
end in c, a_t its share, and γ[i → t][e → c] as in `reference.py`. The probability, given that c ends step t, that the
item on top was pushed at step j, on configuration e, is

    G_t[c | j, e] = α_{j-1}[e] γ[j-1 → t][e → c] / α_t[c],

with j = 0 for the bottom item and e = (0, 0), where time -1 is the fictitious one that pushes it. DERIVATION.md,
"Contents", has the recurrences.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from structattn.operators.common.checks import checked_range
from structattn.operators.common.stack_contents import StackContents, checked_depths
from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack,
    nondeterministic_stack_log_weight,
    nondeterministic_stack_posteriors,
    reference,
)
from structattn.operators.nondeterministic_stack.arguments import checked_arguments
from structattn.operators.nondeterministic_stack.block_contents import SequenceContents, block_contents
from structattn.support.shapes import Float, Lengths

_MOST_GROWTH = 600.0  # e^600 times a share that doubles cannot hold is less than 1e-48
_MOST_WEIGHT = 1e8  # beyond, differences of log-weights have an error of more than 1e-8
_ROWS = 128  # steps whose contents are computed together, by the definition


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


@torch.no_grad()
def nondeterministic_stack_contents(
    push: Float[Tensor, "batch time state symbol state symbol"],
    replace: Float[Tensor, "batch time state symbol state symbol"],
    pop: Float[Tensor, "batch time state symbol state"],
    depths: int = 10,
    *,
    lengths: Lengths = None,
    window: int | None = None,
    definition: bool = False,
) -> StackContents:
    """Return the exact distribution of the symbol and of the pushed vector at each depth of the stack after each step.

    The distribution is over all runs up to the step, weighted by ψ as in `nondeterministic_stack`. Depth 1 is the top;
    its positions are `nondeterministic_stack_weights`, summed over states and symbols. The bottom item counts, so the
    height is at least 1. Not differentiable.

    Args:
        push: log-weights, as for `nondeterministic_stack`.
        replace: as push.
        pop: as push.
        depths: D, the number of depths; the expected height counts all items.
        lengths: number of steps of each sequence; all T where None.
        window: as for `nondeterministic_stack`.
        definition: use the published recurrences in log space, whatever the range of the weights.

    Returns:
        The contents in float64, on the CPU; zeros past a sequence's length, and from a step on at which nothing is
        allowed.

    Raises:
        ValueError: shapes, dtypes, lengths, window or depths do not fit; a logit is NaN or +inf.

    Cost:
        n³/6 · Q²S · (QS + D) multiply-adds for each sequence, one after another, and n² · (Q²S + QS + D) numbers. A
        sequence whose weights may leave the range of doubles (DERIVATION.md, "Range") is computed by the published
        recurrences: n³/6 · Q³S² exponentials, D · n³/3 · Q²S² multiply-adds and n² · Q²S² numbers.
    """
    checked_depths(depths)
    arguments = checked_arguments(push, replace, pop, None, None, lengths, window)
    counts = checked_range(arguments.lengths, 0, push.shape[1], "lengths")
    batch, time, _, symbols = push.shape[:4]
    logits = [x.double().cpu() for x in arguments[:3]]
    zeros = logits[0].new_zeros
    found = StackContents(
        zeros(batch, time),
        zeros(batch, time, depths),
        zeros(batch, time, depths, time + 1),
        zeros(batch, time, depths, symbols),
    )
    for b, count in enumerate(counts.tolist()):
        of_sequence = logits[0][b, :count], logits[1][b, :count], logits[2][b, :count]
        if not all(bool((x < torch.inf).all()) for x in of_sequence):
            raise ValueError(f"sequence {b} has a logit that is NaN or +inf; expected numbers or -inf")
        known = None if definition else block_contents(*of_sequence, window, depths)
        if known is None:
            _write_defined(found, b, defined_top_items(*of_sequence, window))
        else:
            _write(found, b, known)
    return found


def _write(found: StackContents, b: int, contents: SequenceContents) -> None:
    assert found.symbols is not None
    end = len(contents.height)
    found.height[b, :end] = contents.height
    found.positions[b, :end, :, : end + 1] = contents.positions
    found.symbols[b, :end] = contents.symbols
    found.at_least[b, :end] = contents.symbols.sum(2)


def _write_defined(found: StackContents, b: int, items: TopItems) -> None:
    """Write the contents of one sequence: from depth d on lies the stack of an earlier time, and so on downwards."""
    end = items.num_steps
    heights = _heights(items)
    found.height[b, :end] = (items.shares[1:] * heights[1:]).sum(1)
    for start in range(0, end, _ROWS):
        stop = min(start + _ROWS, end)
        rows = torch.arange(start, stop, device="cpu")
        stacks = items.shares.new_zeros(len(rows), stop + 1, items.shares.shape[1])  # whose top is at the depth
        stacks[rows - start, rows + 1] = items.shares[rows + 1]
        for depth in range(found.at_least.shape[2]):
            _write_depth(found, b, rows, depth, stacks)
            tops = items.of(stacks)
            found.positions[b, start:stop, depth, : stop + 1] = tops.sum(2)
            stacks = torch.cat([tops[:, 1:], torch.zeros_like(tops[:, :1])], 1)  # pushed at j on the stack of j - 1


def _write_depth(found: StackContents, b: int, rows: Tensor, depth: int, stacks: Tensor) -> None:
    assert found.symbols is not None
    found.at_least[b, rows, depth] = stacks.sum((1, 2))
    found.symbols[b, rows, depth] = stacks.view(len(rows), -1, found.symbols.shape[3]).sum(1)


def _heights(items: TopItems) -> Tensor:
    """Return the expected height given the configuration that ends each step, (n + 1, C)."""
    heights = torch.ones_like(items.shares)
    for t in range(1, items.num_steps + 1):
        below = torch.einsum("yqje,je->qy", items.tops[:, t, :, 1 : t + 1], heights[:t])
        heights[t] += below.flatten()
    return heights


class PrefixPosteriors(NamedTuple):
    """Probabilities over the runs of each prefix, weighted by ψ; zeros past the length, and where there is no run.

    Args:
        actions: of push, replace and pop at step t, given the first t steps.
        tops: of the state and the symbol on top after step t, given the first t steps.
    """

    actions: Float[Tensor, "batch time 3"]
    tops: Float[Tensor, "batch time state symbol"]


@torch.no_grad()
def nondeterministic_stack_prefix_posteriors(
    push: Float[Tensor, "batch time state symbol state symbol"],
    replace: Float[Tensor, "batch time state symbol state symbol"],
    pop: Float[Tensor, "batch time state symbol state"],
    *,
    lengths: Lengths = None,
    window: int | None = None,
) -> PrefixPosteriors:
    """Return what the last step of each prefix does, over the runs of that prefix.

    The actions at step t are `nondeterministic_stack_posteriors` of the first t steps at step t, summed by action.
    Whole sequences give other posteriors, since later pops weight the runs again. Arguments and errors as in
    `nondeterministic_stack`; computed in float64. Not differentiable.

    Cost: that of `nondeterministic_stack` with vectors of one number, twice; T posteriors of a sequence whose weights
    are beyond the range of doubles.
    """
    logits = push.double(), replace.double(), pop.double()
    ones = logits[0].new_ones(*push.shape[:2], 1)
    shares = nondeterministic_stack(*logits, ones, ones.new_ones(1), lengths=lengths, window=window)[..., 0]
    weights = nondeterministic_stack_log_weight(*logits, lengths=lengths, window=window)
    start = torch.zeros_like(shares[:, :1])
    start[:, :, 0, 0] = 1
    before = torch.cat([start, shares[:, :-1]], 1)[:, : push.shape[1]]
    grown = weights - torch.cat([torch.zeros_like(weights[:, :1]), weights[:, :-1]], 1)[:, : push.shape[1]]
    alive = shares.sum((2, 3)) > 0.5  # they sum to 1, or to 0 past the length and where there is no run

    factors = [x.flatten(4).logsumexp(-1) - grown[..., None, None] for x in logits[:2]]
    counts = (before > 0) & alive[..., None, None]
    pushed, replaced = (torch.where(counts, before * factor.exp(), 0).sum((2, 3)) for factor in factors)
    popped = torch.where(alive, (1 - pushed - replaced).clamp(min=0), 0)
    actions = torch.stack([pushed, replaced, popped], -1)
    # Elsewhere what is lost, a share or the end of a sum, is less than the rounding of doubles.
    lost = (torch.stack(factors) > _MOST_GROWTH).any(0).flatten(2).any(2) | (weights.abs() > _MOST_WEIGHT)
    for b in (lost & alive).any(1).nonzero().flatten().tolist():
        actions[b] = _actions_of_prefixes([x[b : b + 1] for x in logits], int(alive[b].sum()), window)
    return PrefixPosteriors(actions.to(push.dtype), shares.to(push.dtype))


def _actions_of_prefixes(logits: list[Tensor], end: int, window: int | None) -> Float[Tensor, "time 3"]:
    """Return the actions that end the prefixes of one sequence up to a length, one by one."""
    actions = logits[0].new_zeros(logits[0].shape[1], 3)
    for t in range(end):
        found = nondeterministic_stack_posteriors(*(x[:, : t + 1] for x in logits), window=window)
        actions[t] = torch.stack([x[0, t].sum() for x in found])
    return actions

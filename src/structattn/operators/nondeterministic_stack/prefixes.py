"""What the runs of each prefix do: the reading of step t depends on them, not on those of the whole sequence.

With a_t[r, y] the share of the runs up to step t that end in state r with y on top, and Z_t the weight of all of them,

    P(push at t | steps 1 .. t) = Σ_{q, x} a_{t-1}[q, x] Σ_{r, y} exp(push_t[q, x, r, y]) Z_{t-1} / Z_t,

and likewise for replace; the rest are pops. So all prefixes cost no more than one sequence.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from structattn.operators.nondeterministic_stack import nondeterministic_stack, nondeterministic_stack_log_weight
from structattn.support.shapes import Float, Int


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
    lengths: Int[Tensor, " batch"] | None = None,
    window: int | None = None,
) -> PrefixPosteriors:
    """Return what the last step of each prefix does, over the runs of that prefix.

    The actions at step t are `nondeterministic_stack_posteriors` of the first t steps at step t, summed by action.
    Whole sequences give other posteriors, since later pops weight the runs again. Arguments and errors as in
    `nondeterministic_stack`; computed in float64. Not differentiable.

    Cost: that of `nondeterministic_stack` with vectors of one number, twice.
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

    def share(x: Tensor) -> Tensor:
        factor = x.flatten(4).logsumexp(-1) - grown[..., None, None]
        return torch.where((before > 0) & alive[..., None, None], before * factor.exp(), 0).sum((2, 3))

    pushed, replaced = share(logits[0]), share(logits[1])
    popped = torch.where(alive, (1 - pushed - replaced).clamp(min=0), 0)
    actions = torch.stack([pushed, replaced, popped], -1)
    return PrefixPosteriors(actions.to(push.dtype), shares.to(push.dtype))

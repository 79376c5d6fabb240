"""A window of the nondeterministic stack that provably drops next to nothing (DERIVATION.md, "Adaptive window")."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.operators.common.checks import checked_lengths
from structattn.operators.common.implementation import Implementation, chosen_implementation
from structattn.operators.nondeterministic_stack.arguments import checked_arguments
from structattn.operators.nondeterministic_stack.cpu import nondeterministic_stack_cpu
from structattn.operators.nondeterministic_stack.reference import reference_readings

Push = Float[Tensor, "batch time state symbol state symbol"]
Pop = Float[Tensor, "batch time state symbol state"]
_SHORTEST = 16  # a block of steps; shorter windows are hardly faster


class AdaptiveWindow(NamedTuple):
    """A window and a bound of what it drops.

    Attributes:
        window: D, for the operators' argument; None: no window is short enough to save anything.
        dropped: for each sequence, a bound of the share of all runs that D forbids, up to any step; at most the
            tolerance, and zeros without a window.
    """

    window: int | None
    dropped: Float[Tensor, " batch"]


def nondeterministic_stack_window(
    push: Push,
    replace: Push,
    pop: Pop,
    *,
    lengths: Int[Tensor, " batch"] | None = None,
    tolerance: float = 1e-6,
    implementation: Implementation = "auto",
) -> AdaptiveWindow:
    """Return the shortest window of 16, 32, 64, ... steps that drops at most ``tolerance`` of all runs.

    For a dropped share ε, each weight over positions of each step, summed over states, symbols and positions, is wrong
    by at most 2 ε, a reading by 2 ε times the largest coordinate of a vector, a log-weight by -log(1 - ε). Arguments,
    rules and errors otherwise as in ``nondeterministic_stack``; not differentiable.

    Raises:
        ValueError: shapes, dtypes or lengths do not fit.

    Cost: the forward passes with all windows tried, in float64; the last one costs as much as the others together.
    """
    checked_arguments(push, replace, pop, None, None, lengths).in_range()
    time, window = push.shape[1], _SHORTEST
    while window < time:
        options = {"lengths": lengths, "implementation": implementation}
        dropped = nondeterministic_stack_dropped(push, replace, pop, window, **options)  # type: ignore[arg-type]
        if bool((dropped <= tolerance).all()):
            return AdaptiveWindow(window, dropped)
        window *= 2
    return AdaptiveWindow(None, push.new_zeros(len(push), dtype=torch.float64))


@torch.no_grad()
def nondeterministic_stack_dropped(
    push: Push,
    replace: Push,
    pop: Pop,
    window: int,
    *,
    lengths: Int[Tensor, " batch"] | None = None,
    implementation: Implementation = "auto",
) -> Float[Tensor, " batch"]:
    """Return a bound (B,) float64 of the share of all runs that a window forbids, up to any step; inf: none is known.

    Arguments and errors as in ``nondeterministic_stack``. Cost: the forward pass with the window in float64, with
    vectors of size 2 T / window.
    """
    checked_arguments(push, replace, pop, None, None, lengths, window).in_range()
    logits = push.double(), replace.double(), pop.double()
    batch, time, states, symbols = push.shape[:4]
    steps = checked_lengths(lengths, batch, time, push.device)
    if time == 0:
        return logits[0].new_zeros(batch)
    old, log_weight = _old_on_top(*logits, steps, window, implementation)
    growth = log_weight.diff(dim=1, prepend=log_weight.new_zeros(batch, 1))
    most, dropped = logits[0].new_ones(batch, states, symbols), logits[0].new_zeros(batch)
    for t in range(time - 1, -1, -1):
        scaled = [(x[:, t] - growth[:, t].view(-1, *[1] * (x.dim() - 2))).exp() for x in logits]
        after_pop = torch.einsum("bqxr,br->bqx", scaled[2], most.amax(2))
        inside = t < steps
        lost = (old[:, t] * after_pop).sum((1, 2))
        before = torch.einsum("bqxry,bry->bqx", scaled[0] + scaled[1], most) + after_pop * (t > 0)
        dropped += torch.where(inside, lost, 0)
        most = torch.where(inside[:, None, None], before.clamp(min=1), most)
    return torch.where(dropped.isnan(), torch.inf, dropped)


def _old_on_top(
    push: Tensor, replace: Tensor, pop: Tensor, steps: Tensor, window: int, implementation: Implementation
) -> tuple[Tensor, Tensor]:
    """Return bounds (B, T, Q, S) of the shares of runs that have an item on top that a step may not pop; log-weights.

    They are those before the step, by state and top symbol.

    The vectors of the operator are indicators of being pushed before one of some times, half a window apart.
    """
    batch, time, states, symbols = push.shape[:4]
    spacing = max(window // 2, 1)
    # For the steps 2 to T; of step t it is t - 1 - window.
    last_old = torch.arange(1, time, device=push.device) - window
    edge = ((last_old + spacing - 1) // spacing - 1).clamp(min=0)
    edges = torch.arange(1, max(time // spacing, 1) + 1, device=push.device) * spacing
    pushed = torch.arange(1, time + 1, device=push.device)
    values = (pushed[:, None] <= edges).to(push).expand(batch, -1, -1)
    arguments = checked_arguments(push, replace, pop, values, values.new_zeros(len(edges)), steps, window)
    if chosen_implementation("nondeterministic_stack", implementation, push.device) == "cpu":
        readings, log_weight, _ = nondeterministic_stack_cpu(*arguments, False)
    else:
        readings, log_weight = reference_readings(arguments)
    chosen = edge.view(1, -1, 1, 1, 1).expand(batch, -1, states, symbols, 1)
    old = readings[:, :-1].gather(-1, chosen).squeeze(-1)
    old = torch.where((last_old >= 1).view(1, -1, 1, 1), old, 0)
    return torch.cat([old.new_zeros(batch, 1, states, symbols), old], 1), log_weight

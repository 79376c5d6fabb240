"""The definition of the stratified stack: Grefenstette et al. (2015), section 3.1, equations (1) to (3).

Legend: d the strength of a push, u that of a pop; s_t[i] the strength that the vector pushed at step i has after step
t; r the reading. Shapes: B batch, T time, I items, m size of a vector. Item I is the top.
"""

from enum import IntEnum

import torch
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, inside, require_shape
from structattn.operators.common.stack_contents import StackContents, checked_depths
from structattn.support.shapes import Float, Int, Lengths


class StratifiedAction(IntEnum):
    """Index of each strength on the last axis of ``actions``."""

    PUSH = 0
    POP = 1


def _room(first: Tensor | float, strengths: Tensor) -> Tensor:
    """max(0, first - Σ_{j>i} s[j]) for each item i."""
    above = strengths.flip(1).cumsum(1).flip(1) - strengths
    return torch.relu(first - above)


def stratified_step(
    strengths: Float[Tensor, "batch items"], action: Float[Tensor, "batch 2"]
) -> Float[Tensor, "batch items+1"]:
    """Return the strengths after one step, which pops first and then pushes; equation (2).

    s_t[i] = max(0, s_{t-1}[i] - max(0, u_t - Σ_{j>i} s_{t-1}[j])) for i < t, and s_t[t] = d_t. Cost: O(I).

    Args:
        strengths: of the items so far, the top last; none at the beginning.
        action: push and pop.
    """
    push, pop = action[:, :1], action[:, 1:]
    return torch.cat([torch.relu(strengths - _room(pop, strengths)), push], dim=1)


def stratified_shares(strengths: Float[Tensor, "batch items"]) -> Float[Tensor, "batch items"]:
    """Return how much of each item is read, min(s_t[i], max(0, 1 - Σ_{j>i} s_t[j])); equation (3).

    Where both are equal, the gradient is that of the room that is left. Cost: O(I).
    """
    room = _room(1.0, strengths)
    return torch.where(strengths < room, strengths, room)


def stratified_stack_reference(
    actions: Float[Tensor, "batch time 2"], values: Float[Tensor, "batch time vector"], lengths: Int[Tensor, " batch"]
) -> Float[Tensor, "batch time vector"]:
    """Return r_t = Σ_i share_t[i] v_i for every step, and zeros from each sequence's length on. Cost: O(T^2 * m)."""
    here = inside(lengths, values.shape[1])[..., None]
    actions, values = torch.where(here, actions, 0), torch.where(here, values, 0)
    strengths = actions[:, :0, 0]
    readings = [values[:, :0]]
    for t, action in enumerate(actions.unbind(1), 1):
        strengths = stratified_step(strengths, action)
        readings.append(stratified_shares(strengths)[:, None] @ values[:, :t])
    return torch.where(here, torch.cat(readings, dim=1), 0)


@torch.no_grad()
def stratified_stack_contents(
    actions: Float[Tensor, "batch time 2"], depths: int = 10, *, lengths: Lengths = None
) -> StackContents:
    """Return how much of each vector lies in the d-th unit of strength from the top, and the total strength as height.

    positions[t, d, i] is the length of what the item of step i, which covers the depths from b_i = Σ_{j>i} s_t[j] to
    b_i + s_t[i], has in common with the depths from d - 1 to d. Depth 1 is what is read. ``at_least`` is how much of a
    unit is there. There is no bottom vector: column 0 of the positions is zero. Not differentiable.

    Cost: O(B * T^2 * D) in time and memory.

    Args:
        actions: the strengths of push and pop of every step, as for ``stratified_stack``.
        depths: D, the number of units.
        lengths: the number of steps of each sequence; all T where None.

    Raises:
        ValueError: shapes, lengths or depths do not fit.
    """
    require_shape("actions", actions, (None, None, 2), "(B, T, 2)")
    batch, time, _ = actions.shape
    upper = torch.arange(checked_depths(depths), device=actions.device)[:, None].double()
    here = inside(checked_lengths(lengths, batch, time, actions.device), time)
    actions = torch.where(here[..., None], actions, 0).double()
    strengths, height = actions[:, :0, 0], actions.new_zeros(batch, time)
    positions = actions.new_zeros(batch, time, depths, time + 1)
    for t, action in enumerate(actions.unbind(1)):
        strengths = stratified_step(strengths, action)
        end = strengths.flip(1).cumsum(1).flip(1)
        begin = end - strengths
        shared = torch.minimum(end[:, None], upper + 1) - torch.maximum(begin[:, None], upper)
        positions[:, t, :, 1 : t + 2] = shared.clamp(min=0)
        height[:, t] = strengths.sum(1)
    positions = torch.where(here[..., None, None], positions, 0)
    return StackContents(torch.where(here, height, 0), positions.sum(-1), positions)

"""The contents of a stratified stack, in units of strength from the top."""

import torch
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, inside, require_shape
from structattn.operators.common.stack_contents import StackContents, checked_depths
from structattn.operators.stratified_stack.reference import stratified_step
from structattn.support.shapes import Float, Int


@torch.no_grad()
def stratified_stack_contents(
    actions: Float[Tensor, "batch time 2"], depths: int = 10, *, lengths: Int[Tensor, " batch"] | None = None
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

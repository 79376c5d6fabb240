"""The contents of a superposition stack: the weights of each of its cells."""

import torch
from torch import Tensor

from structattn.operators.common.checks import checked_lengths, inside, require_shape
from structattn.operators.common.stack_contents import StackContents, checked_depths
from structattn.operators.superposition_stack.reference import superposition_step
from structattn.support.shapes import Float, Int


@torch.no_grad()
def superposition_stack_contents(
    actions: Float[Tensor, "batch time 3"],
    depths: int = 10,
    *,
    lengths: Int[Tensor, " batch"] | None = None,
    limit: int | None = None,
) -> StackContents:
    """Return the weight of each pushed vector in each cell: V_t[d] = Σ_j positions[t, d, j] v_j.

    For probabilities this is the law of an ordinary stack whose actions are drawn independently and where a pop of the
    empty stack does nothing, as in ``superposition_stack``. So it is for stack pointers, where the empty stack is no
    item. There is no bottom vector: column 0 of the positions is zero. Not differentiable.

    Cost: O(B * T^3) time, O(B * T^2 * D) memory.

    Args:
        actions: push, no-op and pop of every step, as for ``superposition_stack``.
        depths: D, the number of cells from the top; the height counts all cells.
        lengths: the number of steps of each sequence; all T where None.
        limit: the number of cells that the stack has; None: no limit.

    Raises:
        ValueError: shapes, lengths or depths do not fit.
    """
    require_shape("actions", actions, (None, None, 3), "(B, T, 3)")
    batch, time, _ = actions.shape
    depths = checked_depths(depths)
    here = inside(checked_lengths(lengths, batch, time, actions.device), time)
    actions = torch.where(here[..., None], actions, 0).double()
    units = torch.eye(time, dtype=actions.dtype, device=actions.device)
    cells, height = actions.new_zeros(batch, 0, time), actions.new_zeros(batch, time)
    positions = actions.new_zeros(batch, time, depths, time + 1)
    for t, (action, unit) in enumerate(zip(actions.unbind(1), units, strict=True)):
        cells = superposition_step(cells, action, unit.expand(batch, -1), limit)
        height[:, t] = cells.sum((1, 2))
        positions[:, t, : cells.shape[1], 1:] = cells[:, :depths]
    positions = torch.where(here[..., None, None], positions, 0)
    return StackContents(torch.where(here, height, 0), positions.sum(-1), positions)
